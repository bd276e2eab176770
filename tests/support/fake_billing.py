"""Billing without a database: budgets by period, leases, usage; the equal of the real one."""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from serving.contract.budget import kind_of, period_end, period_start
from serving.contract.codec import decode
from serving.contract.lease import (
    Answer,
    Ask,
    Deferred,
    Granted,
    LeaseReply,
    LeaseRequest,
    Refusal,
    Refused,
    Return,
)
from serving.contract.usage import UsageBatch, UsageEvent, UsageReceipt

CODES: dict[str, Refusal] = {
    "balance": "credit_balance_exhausted",
    "organization": "organization_spend_limit_exceeded",
    "project": "project_spend_limit_exceeded",
    "key": "key_budget_exceeded",
}
CLOCK_AHEAD = timedelta(minutes=5)
WANTS_KEPT = 6
"""All that is wanted is granted while so many times as much is left."""


class ClockAhead(Exception):
    """The gateway's clock is more than five minutes ahead."""


@dataclass(eq=False)
class FakeLease:
    """A lease as billing's row has it."""

    gateway_id: str
    granted: Granted
    keep_nanos: int
    settled_nanos: int = 0
    recalled: bool = False
    stopped: bool = False
    closed: bool = False

    @property
    def budget(self) -> tuple[str, datetime]:
        return self.granted.budget_id, self.granted.period

    @property
    def held_nanos(self) -> int:
        return 0 if self.closed else max(self.keep_nanos - self.settled_nanos, 0)


@dataclass
class Books:
    """All that a backup holds."""

    posted: dict[tuple[str, datetime], int] = field(default_factory=dict)
    leases: dict[str, FakeLease] = field(default_factory=dict)
    open: dict[tuple[str, datetime], list[FakeLease]] = field(default_factory=dict)
    asks: dict[str, str] = field(default_factory=dict)
    events: dict[str, UsageEvent] = field(default_factory=dict)


class FakeBilling:
    """Grants from `limits` (None is no limit), settles from events. `now` is its own clock.

    `busy` budgets are deferred, `answers_max` and `returns_max` cut what one reply answers.
    """

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.limits: dict[str, int | None] = {}
        self.books = Books()
        self.lineage = "lineage_1"
        self.lease_seconds = 900.0
        self.busy: set[str] = set()
        self.answers_max = self.returns_max = 10**6
        self.requests: list[LeaseRequest] = []
        self.batches: list[UsageBatch] = []
        self._now = now
        self._numbers = itertools.count(1)

    @property
    def events(self) -> dict[str, UsageEvent]:
        """What was booked, by event id."""
        return self.books.events

    @property
    def returns(self) -> list[Return]:
        """Every return that was ever sent."""
        return [back for request in self.requests for back in request.returns]

    @property
    def closed(self) -> set[str]:
        """The leases that are closed."""
        return {lease_id for lease_id, lease in self.books.leases.items() if lease.closed}

    def leases_of(self, budget_id: str) -> list[FakeLease]:
        """Return the leases of a budget, oldest first."""
        leases = self.books.leases.values()
        return [lease for lease in leases if lease.granted.budget_id == budget_id]

    def available(self, budget_id: str, at: datetime | None = None) -> int:
        """Return what is left of a budget's limit in the period of a moment."""
        limit = self.limits.get(budget_id, 0)
        budget = (budget_id, period_start(budget_id, at or self._now()))
        pending = sum(lease.held_nanos for lease in self.books.open.get(budget, []))
        spent = self.books.posted.get(budget, 0) + pending
        return 10**18 - spent if limit is None else limit - spent

    def back_up(self) -> Books:
        """Return a backup of everything."""
        return copy.deepcopy(self.books)

    def restore(self, books: Books) -> None:
        """Go back to a backup: the database has another lineage, and old leases are void."""
        self.books = copy.deepcopy(books)
        self.lineage = f"lineage_{next(self._numbers)}"
        for lease in self.books.leases.values():
            lease.closed = True
        self.books.open.clear()

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Answer a poll: returns first, so that what comes back can be granted again.

        Raises ClockAhead.
        """
        self.requests.append(request)
        self._check_clock(request.sent_at)
        taken = request.returns[: self.returns_max]
        for back in taken:
            self._take_back(back)
        asks = request.asks[: self.answers_max]
        return LeaseReply(
            self.lineage,
            answers=tuple(self._answer(request.gateway_id, ask) for ask in asks),
            returned=tuple(back.lease_id for back in taken),
            recalls=tuple(
                lease_id
                for lease_id, lease in self.books.leases.items()
                if lease.gateway_id == request.gateway_id and lease.recalled and not lease.stopped
            ),
        )

    def book(self, batch: UsageBatch) -> UsageReceipt:
        """Book a batch. Raises ClockAhead."""
        self.batches.append(batch)
        self._check_clock(batch.sent_at)
        accepted = 0
        for raw in batch.events:
            event = decode(raw, UsageEvent)
            if event.event_id not in self.events:
                accepted += 1
                self._book(event)
        return UsageReceipt(accepted, len(batch.events) - accepted, self.lineage)

    def _check_clock(self, sent_at: datetime | None) -> None:
        if sent_at is not None and sent_at > self._now() + CLOCK_AHEAD:
            raise ClockAhead

    def _take_back(self, back: Return) -> None:
        lease = self.books.leases.get(back.lease_id)
        if lease is None or lease.closed:
            return
        assert lease.settled_nanos <= back.keep_nanos <= lease.keep_nanos
        lease.keep_nanos, lease.stopped = back.keep_nanos, True
        lease.closed = back.closed
        if back.closed:
            self.books.open[lease.budget].remove(lease)

    def _answer(self, gateway_id: str, ask: Ask) -> Answer:
        if ask.ask_id in self.books.asks:
            return self.books.leases[self.books.asks[ask.ask_id]].granted
        if ask.budget_id in self.busy:
            return Deferred(ask.ask_id, ask.budget_id)
        available = self.available(ask.budget_id, ask.at)
        if available < ask.need_nanos:
            return self._refuse(gateway_id, ask, available)
        return self._grant(gateway_id, ask, _size(ask, available))

    def _grant(self, gateway_id: str, ask: Ask, nanos: int) -> Granted:
        period = period_start(ask.budget_id, ask.at)
        ends_at = period_end(ask.budget_id, period)
        until = ask.at + timedelta(seconds=self.lease_seconds)
        granted = Granted(
            ask.ask_id,
            ask.budget_id,
            str(next(self._numbers)),
            nanos,
            period=period,
            admits_from=ask.at,
            admits_until=until if ends_at is None else min(until, ends_at),
            period_ends_at=ends_at,
        )
        lease = self.books.leases[granted.lease_id] = FakeLease(gateway_id, granted, nanos)
        self.books.open.setdefault(lease.budget, []).append(lease)
        self.books.asks[ask.ask_id] = granted.lease_id
        return granted

    def _refuse(self, gateway_id: str, ask: Ask, available: int) -> Refused:
        """Say no, and call back what other gateways may have idle."""
        budget = (ask.budget_id, period_start(ask.budget_id, ask.at))
        recalled = [
            lease
            for lease in self.books.open.get(budget, [])
            if lease.gateway_id != gateway_id
            if lease.held_nanos and not lease.stopped
        ]
        for lease in recalled:
            lease.recalled = True
        return Refused(
            ask.ask_id,
            ask.budget_id,
            CODES[kind_of(ask.budget_id) or "balance"],
            available_nanos=max(available, 0),
            recall_in_progress=bool(recalled),
            limit_nanos=self.limits.get(ask.budget_id, 0),
        )

    def _book(self, event: UsageEvent) -> None:
        self.events[event.event_id] = event
        for charge in event.charges:
            lease = self.books.leases.get(charge.lease_id)
            budget = (charge.budget_id, period_start(charge.budget_id, event.received_at))
            if lease is not None and not lease.closed:
                assert lease.budget == budget
                lease.settled_nanos += charge.charged_nanos
            self.books.posted[budget] = self.books.posted.get(budget, 0) + charge.charged_nanos


def _size(ask: Ask, available: int) -> int:
    """Return how much to grant: ten minutes' spend, then one, then one request's worst case."""
    if available >= WANTS_KEPT * ask.want_nanos:
        return max(ask.need_nanos, ask.want_nanos)
    if available >= ask.want_nanos:
        return max(ask.need_nanos, ask.want_nanos // 10)
    return ask.need_nanos
