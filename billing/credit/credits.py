"""An organization's credit by grant: what is left of each, until when, and how long it lasts."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Q

from billing.credit.models import CreditGrant, GrantKind, GrantState
from billing.credit.selectors import balance_nanos, balances_nanos

FOREVER = datetime.max.replace(tzinfo=UTC)
_OPEN = Q(account__balance_nanos__lt=0)
_NEWEST_FIRST = CreditGrant.objects.select_related("account").order_by("-granted_at", "-id")
SECOND = timedelta(seconds=1)
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Credit:
    """A grant, in nano-dollars. `remaining_nanos` is what is left of it now: usage that the ledger
    doesn't hold yet is drawn already, so the active credits add up to the balance."""

    grant: CreditGrant
    remaining_nanos: int
    state: GrantState

    @property
    def is_active(self) -> bool:
        """Whether new usage may draw from it."""
        return self.state == GrantState.ACTIVE


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a balance pays for at a pace: whole days (None without usage), the nano-dollars that are
    used by then, and those that expire unused, or in any case without usage."""

    days: int | None
    used_nanos: int
    unused_nanos: int


def open_credit(organization_ids: Collection[str], now: datetime) -> dict[str, list[Credit]]:
    """Return the credit of each organization of which the ledger has something left, newest first,
    exact at once. Read in two queries."""
    found: dict[str, list[CreditGrant]] = {each: [] for each in organization_ids}
    for grant in _NEWEST_FIRST.filter(_OPEN, organization_id__in=found):
        found[grant.organization_id].append(grant)
    balances = balances_nanos(found)
    return {each: _credit(grants, balances.get(each, 0), now) for each, grants in found.items()}


def credit_by_grant(
    organization_id: str, grants: Iterable[str], now: datetime, *, balance: int | None = None
) -> list[Credit]:
    """Return an organization's open credit and that of the grants with these ids, newest first.
    `balance` is its balance in nano-dollars, where the caller knows it already."""
    mine = _NEWEST_FIRST.filter(organization_id=organization_id)
    found = list(mine.filter(_OPEN | Q(id__in=grants)))
    return _credit(found, balance_nanos(organization_id) if balance is None else balance, now)


def _credit(grants: Sequence[CreditGrant], balance: int, now: datetime) -> list[Credit]:
    undrawn = max(sum(one.remaining_nanos for one in grants) - max(balance, 0), 0)
    remaining: dict[str, int] = {}
    for grant in sorted(grants, key=_draw_order):
        drawn = min(grant.remaining_nanos, undrawn)
        undrawn -= drawn
        remaining[grant.id] = grant.remaining_nanos - drawn
    return [Credit(one, remaining[one.id], one.state(now, remaining[one.id])) for one in grants]


def forecast(found: Sequence[Credit], nanos_per_day: int, now: datetime) -> Forecast:
    """Return how long the active credits last at a pace, the soonest to expire drawn first.

    Worked example: of 10 that never expire and 500 that expire in two days, 3 a day draw 6 of the
    500 in time: they last 5 days ((6 + 10) // 3), and 494 expire unused.
    """
    active = sorted((one for one in found if one.is_active), key=lambda one: _draw_order(one.grant))
    spent = unused = 0
    for one in active:
        until = spent + one.remaining_nanos
        if one.grant.expires_at is not None:
            seconds = (one.grant.expires_at - now) // SECOND
            until = max(min(until, nanos_per_day * seconds // DAY_SECONDS), spent)
        unused += spent + one.remaining_nanos - until
        spent = until
    return Forecast(spent // nanos_per_day if nanos_per_day else None, spent, unused)


def _draw_order(grant: CreditGrant) -> tuple[datetime, bool, datetime, str]:
    """Usage draws the soonest to expire first, and promotional credit before paid."""
    is_paid = grant.kind != GrantKind.PROMOTIONAL
    return grant.expires_at or FOREVER, is_paid, grant.granted_at, grant.id
