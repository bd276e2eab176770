"""A look at authorization after every commit: what is committed is never wrong, however short."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from serving.contract.lease import LeaseAsk, LeaseDenial, LeaseGrant, LeaseReply, LeaseRequest
from tests.simulation.clock import EPOCH, Clock
from tests.simulation.locks import LEDGER_INSERT, funds_of
from tests.simulation.oracle import ends_at, require

BUDGETS = """
SELECT id, budget_id, starts_at, ends_at, limit_nanos, posted_nanos, pending_nanos, funded_nanos
FROM credit_budget
"""
REFUNDS = """
SELECT organization_id, count(*) FROM ledger_transaction
WHERE kind = 'refund' AND source NOT LIKE '%:stripe:re\\_%' GROUP BY 1
"""
"""Refunds that were decided here; Stripe's own are a fact, whatever gateways hold."""
SEALED_EARLY = """
SELECT day FROM metering_day
WHERE sealed_at IS NOT NULL AND closed_xid > (SELECT min(xid) FROM following_cursor)
"""
CREDIT = """
SELECT made.organization_id, -sum(account.balance_nanos)::bigint, coalesce(max((
    SELECT balance_nanos FROM ledger_account AS owed
    WHERE owed.organization_id = made.organization_id AND owed.kind = 'accounts_receivable'
)), 0)
FROM credit_grant AS made JOIN ledger_account AS account ON account.id = made.account_id
WHERE account.balance_nanos < 0 AND (made.expires_at IS NULL OR made.expires_at > %s)
GROUP BY 1
"""
"""What is left to each organization that has credit, and what it owes beside that."""
AHEAD_MAX, BEHIND_MAX = timedelta(minutes=20), timedelta(hours=24)
"""Between these a lease begins where it is asked to."""
LEASES = """
SELECT id, budget_id, gateway_id, granted_nanos, keep_nanos, settled_nanos, admits_from,
    admits_until, recalled_at, stopped_at, closed_at, voided_at
FROM credit_lease
"""


class BudgetRow(NamedTuple):
    """A row of authorization as it is stored."""

    id: int
    budget_id: str
    starts_at: datetime
    ends_at: datetime | None
    limit_nanos: int | None
    posted_nanos: int
    pending_nanos: int
    funded_nanos: int

    @property
    def kind(self) -> str:
        """What it limits, by the first word of its name."""
        return self.budget_id.partition(":")[0]

    @property
    def left_nanos(self) -> float:
        """What may still be granted; below zero where more is spent and held than may be."""
        if self.limit_nanos is None:
            return math.inf
        return self.limit_nanos - self.posted_nanos - self.pending_nanos

    @property
    def is_over(self) -> bool:
        """Whether more is spent and held than may be."""
        return self.left_nanos < 0


class LeaseRow(NamedTuple):
    """A lease as it is stored."""

    id: int
    budget: int
    gateway_id: str
    granted_nanos: int
    keep_nanos: int
    settled_nanos: int
    admits_from: datetime
    admits_until: datetime
    recalled_at: datetime | None
    stopped_at: datetime | None
    closed_at: datetime | None
    voided_at: datetime | None

    @property
    def held_nanos(self) -> int:
        """What it keeps from others."""
        return 0 if self.closed_at else max(self.keep_nanos - self.settled_nanos, 0)


@dataclass(slots=True)
class Watch:
    """Looks at authorization after every commit: what was committed is never wrong, however
    short."""

    monitor: psycopg.Connection
    budgets: dict[int, BudgetRow] = field(default_factory=dict)
    leases: dict[int, LeaseRow] = field(default_factory=dict)
    refunds: dict[str, int] = field(default_factory=dict)
    clock: Clock = field(default_factory=lambda: Clock(EPOCH))
    released: set[int] = field(default_factory=set)
    """Leases that an operator gave up: the others wait a day for their gateway."""
    begun: set[int] = field(default_factory=set)
    """The leases that there were when this step began."""
    least_nanos: dict[int, float] = field(default_factory=dict)
    """The least that was left of each budget at any moment of this step."""
    limits_nanos: dict[str, set[int | None]] = field(default_factory=lambda: defaultdict(set))
    """The limits of each budget, in whatever period, at all moments of this step."""
    credit_nanos: dict[str, int] = field(default_factory=dict)
    """What was left to each organization that had credit."""
    called_back: set[int] = field(default_factory=set)
    """Budgets of which all that gateways hold was asked back in this step, if for a moment: a
    dispute that is heard of when it was won takes money and gives it back in one transaction."""

    def begin(self) -> None:
        """Begin a step: what is left of budgets from now on is what its calls may have seen."""
        self.begun = set(self.leases)
        self.called_back.clear()
        self.least_nanos = {row.id: row.left_nanos for row in self.budgets.values()}
        self.limits_nanos.clear()
        self._learn_limits(self.budgets)

    def hear(self, statement: str, params: Any) -> None:
        """Hear what is about to be said: who may not be refunded yet has everything called back,
        and who has less than gateways hold."""
        if "SELECT credit_recall(" in statement:
            self.called_back.add(params[0])
        elif LEDGER_INSERT in statement:
            for owner, nanos in funds_of(statement, params).items():
                self.called_back |= {
                    row.id
                    for row in self.budgets.values()
                    if row.budget_id == f"balance:{owner}" and row.left_nanos + nanos < 0
                }

    def look(self) -> None:
        """Compare what is committed now with what was before. Raises BrokenError."""
        with self.monitor.pipeline(), self.monitor.transaction():
            self.monitor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            queries = (BUDGETS, LEASES, REFUNDS, SEALED_EARLY)
            rows = [self.monitor.execute(query) for query in queries]
            rows.append(self.monitor.execute(CREDIT, [self.clock.now]))
        budgets = {row[0]: BudgetRow(*row) for row in rows[0]}
        leases = {row[0]: LeaseRow(*row) for row in rows[1]}
        refunds = {row[0]: row[1] for row in rows[2]}
        early = rows[3].fetchall()
        require(not early, "A day is sealed when every follower has passed it", early)
        credit = rows[4].fetchall()
        for one in credit:
            self._check_credit(*one)
        held: Counter[int] = Counter()
        for lease in leases.values():
            held[lease.budget] += lease.held_nanos
            self._check_lease(lease, budgets[lease.budget])
        for budget in budgets.values():
            self._check_budget(budget, held[budget.id], leases)
        require(self.leases.keys() <= leases.keys(), "A lease stays")
        refunded = {owner for owner, n in refunds.items() if n != self.refunds.get(owner, 0)}
        for budget in budgets.values():
            if budget.budget_id.partition(":")[2] in refunded and budget.kind == "balance":
                is_safe = not budget.is_over or self.budgets[budget.id].is_over
                require(is_safe, "A refund takes nothing that gateways hold", budget)
            seen = self.least_nanos.get(budget.id, math.inf)
            self.least_nanos[budget.id] = min(seen, budget.left_nanos)
        self.budgets, self.leases, self.refunds = budgets, leases, refunds
        self.credit_nanos = {row[0]: row[1] for row in credit}
        self._learn_limits(budgets)

    def check_reply(self, request: LeaseRequest, reply: LeaseReply, *, began_at: datetime) -> None:
        """What was returned is taken. A lease is answered as it was granted, and with nothing where
        it is over already."""
        for given in request.returns:
            row = self.leases[int(given.lease_id.partition(".")[2])]
            is_taken = row.keep_nanos <= max(given.keep_nanos, row.settled_nanos)
            if given.lease_id in reply.returned and row.closed_at is None:
                require(is_taken, "What is returned is taken", given, row)
        asks = {ask.ask_id: ask for ask in request.asks}
        for answer in reply.answers:
            if isinstance(answer, LeaseDenial):
                self._check_refusal(asks[answer.ask_id], answer)
            if not isinstance(answer, LeaseGrant):
                continue
            row = self.leases[int(answer.lease_id.partition(".")[2])]
            if answer.granted_nanos == 0:
                is_right = row.stopped_at is not None or row.closed_at is not None
            else:
                is_going = row.closed_at is None or row.closed_at >= began_at
                is_right = is_going and answer.granted_nanos == row.granted_nanos
            require(is_right, "A lease is answered as it was granted", answer, row)
            at = max(min(asks[answer.ask_id].at, began_at + AHEAD_MAX), began_at - BEHIND_MAX)
            is_asked = row.id in self.begun or row.admits_from == at
            require(is_asked, "A lease begins when it was asked for", asks[answer.ask_id], row)

    def _check_refusal(self, ask: LeaseAsk, answer: LeaseDenial) -> None:
        """Who is refused is told what was left at some moment, and of which limit, in the period
        asked for or, where that is long over, in the running one."""
        least = [
            max(self.least_nanos[row.id], 0)
            for row in self.budgets.values()
            if row.budget_id == ask.budget_id
        ]
        is_true = not least or min(least) <= answer.available_nanos
        require(is_true, "A refusal is true", ask, answer, least)
        limits = self.limits_nanos.get(ask.budget_id)
        is_known = limits is None or answer.limit_nanos in limits
        require(is_known, "A refusal names the limit", ask, answer, limits)

    def _learn_limits(self, budgets: Mapping[int, BudgetRow]) -> None:
        for row in budgets.values():
            limit = None if row.limit_nanos is None else max(row.limit_nanos, 0)
            self.limits_nanos[row.budget_id].add(limit)

    def _check_credit(self, owner: str, nanos: int, owed_nanos: int) -> None:
        """A close may add tax and rounding to what is owed beside credit, which pays them with the
        next posting; new credit pays before it is any."""
        is_new = nanos > self.credit_nanos.get(owner, 0)
        is_paid = owed_nanos <= 0 or not is_new
        require(
            is_paid, "Credit pays what is owed as soon as it is there", owner, nanos, owed_nanos
        )

    def _check_budget(self, now: BudgetRow, held: int, leases: Mapping[int, LeaseRow]) -> None:
        require(now.pending_nanos == held, "Pending is what open leases hold", now, held)
        before = self.budgets.get(now.id)
        if before is None:
            is_right = now.ends_at == ends_at(now.budget_id, now.starts_at)
            require(is_right, "A period ends when it does", now)
            return
        require(now.posted_nanos >= before.posted_nanos, "Posted never falls", before, now)
        if None in (before.limit_nanos, now.limit_nanos):
            is_lowered = before.limit_nanos is None and now.limit_nanos is not None
        else:
            is_lowered = now.limit_nanos < before.limit_nanos  # type: ignore[operator]
        if is_lowered and now.is_over:
            idle = [
                lease.id
                for lease in leases.values()
                if lease.budget == now.id
                and not (lease.closed_at or lease.stopped_at or lease.recalled_at)
            ]
            require(not idle, "A lowered limit recalls at once", now, idle)

    def _check_lease(self, now: LeaseRow, budget: BudgetRow) -> None:
        before = self.leases.get(now.id)
        if before is None and now.closed_at is not None:
            return  # one call after another has had it, at rest
        if before is None:
            require(not budget.is_over, "No grant breaks a limit", now, budget)
            end = budget.ends_at
            is_inside = budget.starts_at <= now.admits_from and (
                end is None or (now.admits_until <= end and now.admits_from < end)
            )
            require(is_inside, "A lease lies in its period", now, budget)
            soonest, latest = self.clock.now - BEHIND_MAX, self.clock.now + AHEAD_MAX
            is_near = soonest <= now.admits_from <= latest
            require(is_near, "A lease begins about now", now)
            whole = now.admits_from + timedelta(minutes=15)
            until = whole if end is None else min(whole, end)
            require(now.admits_until == until, "A lease admits for its time", now)
            return
        if now.voided_at is not None and before.voided_at is None and now.id not in self.released:
            is_abandoned = now.admits_until <= self.clock.now - timedelta(hours=24)
            require(is_abandoned, "A lease waits a day for its gateway", now)
        require(now.granted_nanos == before.granted_nanos, "A grant never changes", before, now)
        require(now.keep_nanos <= before.keep_nanos, "What is kept never grows", before, now)
        require(now.settled_nanos >= before.settled_nanos, "Settled never falls", before, now)
        require(before.closed_at in (None, now.closed_at), "A closed lease stays so", before, now)
        is_recalled = now.recalled_at is not None and before.recalled_at is None
        if is_recalled and not budget.is_over and budget.id not in self.called_back:
            is_going = before.admits_until > self.clock.now and before.stopped_at is None
            is_idle = is_going and before.held_nanos > 0
            require(is_idle, "Only what lies idle is recalled", before, now, budget)
