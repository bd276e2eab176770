"""What new facts come to: what they add to budgets and to leases, and the alarms they raise."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from billing.credit.selectors import BudgetKey, fine_rows, key_at
from billing.credit.services.leases import charge
from billing.metering.claims import Claimants, Claims
from billing.metering.judging import Fact
from control.alarms.count import Alarms
from serving.contract.budget import LimitPeriod, limit_budget_id, limited_id

FINE: tuple[LimitPeriod, ...] = ("week", "day")

Nanos = dict[int, int]
"""Money by the row of a budget or of a lease."""


class Effects:
    """What the new facts of one transaction come to, all of them together."""

    def __init__(self, claimants: Claimants, alarms: Alarms) -> None:
        self._claimants = claimants
        self._alarms = alarms
        self._facts: list[Fact] = []
        self._charged: Nanos = defaultdict(int)
        self._settled: Nanos = defaultdict(int)

    def add(self, fact: Fact, claimed: Claims) -> None:
        """Count one fact in."""
        for alarm in (*fact.alarms, *claimed.alarms):
            self._alarms[fact.event.organization_id, alarm] += 1
        if nanos := fact.charged_nanos:
            self._facts.append(fact)
            charged, settled = self._charged, self._settled
            for budget in claimed.chain.values():
                charged[budget] += nanos
            for lease, part in claimed.settled_nanos.items():
                settled[lease] += part

    def book(self) -> None:
        """Add it all to budgets and leases, which locks them until the transaction ends.

        Budgets by the week and the day come last. Few customers have any, and who opens one holds
        the balance's lock while summing up what was used before: they are looked for once the
        balances were charged, so each charge is in that sum or is counted here, never both.
        """
        if not self._charged:
            return
        fine = self._take_fine()
        self._charge(self._charged, self._settled)
        moments = [fact.received.received_at for fact in self._facts]
        owners = {fact.event.organization_id for fact in self._facts}
        rows = fine_rows(owners, min(moments), max(moments))
        if rows or fine:
            self._charge(self._fine_charges(rows), fine)

    def _take_fine(self) -> Nanos:
        """Take out what settles leases by the week and the day, and return it."""
        rows = self._claimants.fine_leases()
        return {lease: self._settled.pop(lease) for lease in rows if lease in self._settled}

    def _charge(self, charged: Mapping[int, int], settled: Mapping[int, int]) -> None:
        overrun, closed = charge(charged, settled)
        for kind, leases in (("lease_overrun", overrun), ("closed_lease", closed)):
            for owner in self._claimants.owners(leases):
                self._alarms[owner, kind] += 1

    def _fine_charges(self, rows: Mapping[BudgetKey, int]) -> Nanos:
        limited = {limited_id(key.budget_id) for key in rows}
        charged: Nanos = Counter()
        for fact in self._facts:
            for key in _fine_keys(fact, limited):
                if (row := rows.get(key)) is not None:
                    charged[row] += fact.charged_nanos
        return charged


def _fine_keys(fact: Fact, limited: Collection[str]) -> list[BudgetKey]:
    event, at = fact.event, fact.received.received_at
    owners = {event.organization_id, event.project_id, event.key_id}.intersection(limited)
    return [key_at(limit_budget_id(owner, period), at) for owner in owners for period in FINE]
