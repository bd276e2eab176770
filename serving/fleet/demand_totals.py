"""What all gateways together have to do for one deployment, kept as sums.

Organizations of a tier with the same weight and the same need are one group. A report moves those
that changed from one group to another, and a division goes through the groups, of which there are
few however many organizations wait.
"""

from collections import defaultdict
from collections.abc import Iterable

from serving.contract.slot_shares import DeploymentDemand, OrganizationDemand
from serving.contract.units import TIERS, Tier

GroupKey = tuple[int, int, bool]
"""An organization's weight, what it needs at all gateways, and whether it pays."""
PART_TOLERANCE = 4
"""A gateway is told anew of its part of an organization where what that runs or has waiting there
changed, and once what it needs at all gateways has moved by more than a quarter since."""


class DemandGroup:
    """How many organizations are alike, and by gateway what they need there; 0 at one where none
    of them needs anything any more."""

    __slots__ = ("count", "needs")

    def __init__(self) -> None:
        self.count = 0
        self.needs: defaultdict[str, int] = defaultdict(int)


class OrganizationTotal:
    """What one organization needs for one tier: at all gateways together, and by gateway."""

    __slots__ = ("demands", "key", "needs")

    def __init__(self) -> None:
        self.demands: dict[str, OrganizationDemand] = {}
        self.needs: dict[str, int] = {}
        self.key: GroupKey = (0, 0, True)

    def set(self, gateway: str, demand: OrganizationDemand, need: int) -> None:
        """Take in what it needs at a gateway. Its weight is the largest of any gateway's, and it
        pays where it does at all of them."""
        before = self.demands.get(gateway)
        weight, total, is_paying = self.key
        total += need - self.needs.get(gateway, 0)
        if need:
            self.demands[gateway], self.needs[gateway] = demand, need
        else:
            del self.demands[gateway], self.needs[gateway]
        is_alike = before is not None and (
            before.weight == demand.weight and before.is_paying == demand.is_paying
        )
        if before is None and len(self.demands) > 1:
            weight, is_paying = max(weight, demand.weight), is_paying and demand.is_paying
        elif not (need and is_alike):
            weight = max((one.weight for one in self.demands.values()), default=0)
            is_paying = all(one.is_paying for one in self.demands.values())
        self.key = weight, total, is_paying


class TierTotals:
    """One tier of a deployment: its groups, by gateway the `needs`, and the `gateways` where the
    tier is in use."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, DemandGroup] = {}
        self.needs: dict[str, int] = {}
        self.gateways: set[str] = set()
        self.totals: dict[str, OrganizationTotal] = {}
        self._organizations: dict[str, set[str]] = {}

    @property
    def need(self) -> int:
        """What is needed at all gateways."""
        return sum(self.needs.values())

    @property
    def has_never_paid(self) -> bool:
        """Whether any organization never paid."""
        return any(not is_paying for _, _, is_paying in self.groups)

    def organizations(self, gateway: str) -> set[str]:
        """Return the organizations that need anything at a gateway."""
        return self._organizations.get(gateway, set())

    def set(self, gateway: str, organization: str, demand: OrganizationDemand) -> int | None:
        """Take in what an organization needs at a gateway; return how much more that is, None where
        it changes no division."""
        total = self.totals.get(organization)
        before = None if total is None else total.demands.get(gateway)
        more = need = demand.running + demand.waiting
        if before is not None and total is not None:
            more -= before.running + before.waiting
            if not more and before.weight == demand.weight and before.is_paying == demand.is_paying:
                total.demands[gateway] = demand
                return None
        elif not need:
            return None
        if total is None:
            total = self.totals[organization] = OrganizationTotal()
        else:
            self._count(total, -1)
        total.set(gateway, demand, need)
        if need:
            self._organizations.setdefault(gateway, set()).add(organization)
        else:
            self._organizations[gateway].discard(organization)
        if total.needs:
            self._count(total, 1)
        else:
            del self.totals[organization]
        self.needs[gateway] = self.needs.get(gateway, 0) + more
        return more

    def forget(self, gateway: str) -> None:
        """Forget a gateway at which nothing is needed any more."""
        self.gateways.discard(gateway)
        self.needs.pop(gateway, None)
        self._organizations.pop(gateway, None)

    def _count(self, total: OrganizationTotal, sign: int) -> None:
        """Count an organization in its group, or (-1) no more."""
        group = self.groups.get(total.key)
        if group is None:
            group = self.groups[total.key] = DemandGroup()
        group.count += sign
        if not group.count:
            del self.groups[total.key]
            return
        needs = group.needs
        for gateway, need in total.needs.items():
            needs[gateway] += sign * need


class DemandTotals:
    """All tiers of one deployment, and the `gateways` that report it. `version` grows whenever a
    division may come out differently."""

    def __init__(self) -> None:
        self.version = 0
        self.gateways: set[str] = set()
        self.tiers: dict[Tier, TierTotals] = {tier: TierTotals() for tier in TIERS}
        self._in_use: set[str] = set()
        """The gateways where any tier is,"""
        self._needs: dict[str, int] = {}
        """of each organization at all gateways, in all tiers;"""
        self._told: dict[str, int] = {}
        """the same when gateways were last told of their parts,"""
        self._stale: dict[str, set[str]] = {}
        """and by gateway the organizations whose part it is to be told."""

    def apply(self, gateway: str, demand: DeploymentDemand, *, is_whole: bool) -> None:
        """Take in what a gateway has to do: all of it, or what changed."""
        if not demand.tiers and gateway in self.gateways and gateway not in self._in_use:
            return
        (self._in_use.add if demand.tiers else self._in_use.discard)(gateway)
        if gateway not in self.gateways:
            self.gateways.add(gateway)
            self._stale[gateway] = set()
            self.version += 1
        for tier, totals in self.tiers.items():
            named = demand.tiers.get(tier)
            gone = totals.organizations(gateway)
            if named is not None:
                self._use(totals, gateway)
                gone = gone - named.keys() if is_whole else set()
                self._stale[gateway].update(named)
                for organization, one in named.items():
                    self._set(totals, gateway, organization, one)
            elif gateway in totals.gateways:
                self._leave(totals, gateway)
            self._stale[gateway].update(gone)
            for organization in tuple(gone):
                self._set(totals, gateway, organization, NOTHING_NEEDED)

    def remove(self, gateway: str) -> None:
        """Forget a gateway."""
        if gateway not in self.gateways:
            return
        self.apply(gateway, DeploymentDemand(), is_whole=True)
        for totals in self.tiers.values():
            totals.forget(gateway)
        self.gateways.discard(gateway)
        del self._stale[gateway]
        self.version += 1

    def needs(self, gateway: str) -> bool:
        """Tell whether anything waits or runs at a gateway."""
        return any(totals.needs.get(gateway) for totals in self.tiers.values())

    def organizations(self, gateway: str) -> set[str]:
        """Return the organizations that need anything at a gateway."""
        return set[str]().union(*(one.organizations(gateway) for one in self.tiers.values()))

    def parts(self, gateway: str, organizations: Iterable[str]) -> dict[str, float]:
        """Return which part of its slots each of some organizations has at a gateway, where it
        waits there and comes through others too; otherwise 1."""
        found = {}
        tiers = [tier.totals for tier in self.tiers.values() if gateway in tier.gateways]
        for organization in organizations:
            here = waiting = 0
            for totals in tiers:
                total = totals.get(organization)
                if total is not None and (one := total.demands.get(gateway)) is not None:
                    here += one.running + one.waiting
                    waiting += one.waiting
            found[organization] = here / self._needs[organization] if waiting else 1.0
        return found

    def take_parts(self, gateway: str) -> dict[str, float]:
        """Return the parts that a gateway is to be told of, once."""
        stale, self._stale[gateway] = self._stale[gateway], set()
        return self.parts(gateway, stale)

    def _set(
        self, totals: TierTotals, gateway: str, organization: str, demand: OrganizationDemand
    ) -> None:
        more = totals.set(gateway, organization, demand)
        if more is None:
            return
        self.version += 1
        need = self._needs.get(organization, 0) + more
        told = self._told.get(organization, 0)
        if not need:
            self._needs.pop(organization, None)
            self._told.pop(organization, None)
            return
        self._needs[organization] = need
        if abs(need - told) * PART_TOLERANCE > told:
            self._told[organization] = need
            for tier in self.tiers.values():
                if (total := tier.totals.get(organization)) is not None:
                    for one in total.needs:
                        self._stale[one].add(organization)

    def _use(self, totals: TierTotals, gateway: str) -> None:
        if gateway not in totals.gateways:
            totals.gateways.add(gateway)
            self.version += 1

    def _leave(self, totals: TierTotals, gateway: str) -> None:
        totals.gateways.discard(gateway)
        self.version += 1


NOTHING_NEEDED = OrganizationDemand(1, 0, 0)
