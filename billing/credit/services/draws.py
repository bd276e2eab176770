"""Posting usage: it draws the credit that was valid when it was received, soonest to expire first,
promotional before paid; what no credit covers is owed. The balances are locked."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import NamedTuple

from django.db import connection

from billing.credit.models import CreditGrant
from billing.credit.selectors import CreditSource, credit_sources
from billing.credit.signals import receivables_changed
from billing.ledger.causes import ALLOCATION, CREDIT_RULES, USAGE, AccountKind
from billing.ledger.post import Leg, Posting, post, post_all, transfer
from billing.ledger.selectors import owed_by

# Locked in the order in which the follower adds to them, so that the two never meet in a ring.
TAKE_UNPOSTED = """
WITH due AS MATERIALIZED (
    SELECT id FROM credit_unposted_usage
    WHERE organization_id = ANY(%s) AND accounted_on <= %s
    ORDER BY organization_id, accounted_on, received_before FOR UPDATE
)
DELETE FROM credit_unposted_usage AS unposted USING due WHERE unposted.id = due.id
RETURNING unposted.organization_id, unposted.accounted_on, unposted.received_before, unposted.nanos
"""
FOR_EVER = datetime.max.replace(tzinfo=UTC)


class Unposted(NamedTuple):
    """Charges of one day whose credit had to be valid until `received_before`, None for ever."""

    organization_id: str
    accounted_on: date
    received_before: datetime | None
    nanos: int


@dataclass(frozen=True, slots=True)
class Draw:
    """What one piece of usage takes: of each source, of it out of what had expired; the rest is
    owed."""

    taken: tuple[tuple[CreditSource, int], ...]
    owed_nanos: int

    @property
    def legs(self) -> list[Leg]:
        """The debits of the credit that it takes."""
        return [
            Leg(CREDIT_RULES[source.kind].account, part, source.grant_id)
            for source, part in self.taken
        ]


def draw(nanos: int, sources: Iterable[CreditSource], received_before: datetime | None) -> Draw:
    """Take `nanos` from the sources, in order, that were valid for it.

    Worked example: 70 from sources holding 50 and 100 takes 50 and 20 and owes 0. Where the first
    held 10 and its expiry, after the usage was received, took 40, it gives 50 all the same.
    """
    taken = []
    for source in sources:
        is_valid = source.expires_at is None or (
            received_before is not None and received_before <= source.expires_at
        )
        part = min(nanos, source.remaining_nanos + source.expired_nanos) if is_valid else 0
        if part:
            taken.append((source, part))
            nanos -= part
    return Draw(tuple(taken), nanos)


def post_unposted(
    organization_ids: Collection[str], *, now: datetime, through: date = date.max
) -> int:
    """Post the usage followed so far, one transaction per organization and day; returns how many.

    Debts that credit can pay are paid.
    """
    pieces = _take_unposted(organization_ids, through)
    if not pieces:
        return 0
    owners = sorted({one.organization_id for one in pieces})
    earliest = min(piece.received_before or FOR_EVER for piece in pieces)
    sources = credit_sources(owners, valid_at=earliest)
    by_day: dict[tuple[str, date], list[Unposted]] = defaultdict(list)
    for piece in pieces:
        by_day[piece.organization_id, piece.accounted_on].append(piece)
    postings = [
        Posting(USAGE, owner, legs, accounted_on=day)
        for (owner, day), of_day in sorted(by_day.items())
        if (legs := _usage_of_a_day(of_day, sources, now))
    ]
    post_all(postings, now=now)
    allocate(owners, now=now)
    return len(by_day)


def allocate(organization_ids: Collection[str], *, now: datetime) -> None:
    """Pay the organizations' debts with the credit that they have now."""
    owed = owed_by(organization_ids)
    if not owed:
        return
    postings = []
    for owner, sources in credit_sources(list(owed), valid_at=now).items():
        valid = [
            replace(source, expires_at=None, expired_nanos=0)
            for source in sources
            if source.expires_at is None or source.expires_at > now
        ]
        drawn = draw(owed[owner], valid, None)
        if drawn.taken:
            paid = Leg(AccountKind.ACCOUNTS_RECEIVABLE, drawn.owed_nanos - owed[owner])
            postings.append(Posting(ALLOCATION, owner, [*drawn.legs, paid]))
    post_all(postings, now=now)
    if postings:
        receivables_changed.send(Posting, organization_ids=list(owed), now=now)


def _take_unposted(organization_ids: Collection[str], through: date) -> list[Unposted]:
    with connection.cursor() as cursor:
        cursor.execute(TAKE_UNPOSTED, [list(organization_ids), through])
        rows = [Unposted(*row) for row in cursor.fetchall()]
    return sorted(rows, key=lambda row: (row.accounted_on, row.received_before or FOR_EVER))


def _usage_of_a_day(
    pieces: list[Unposted], sources: dict[str, list[CreditSource]], now: datetime
) -> list[Leg]:
    """Draw an organization's charges of a day from its sources, and leave these as that does."""
    legs: list[Leg] = []
    for piece in pieces:
        mine = sources.get(piece.organization_id, [])
        drawn = draw(piece.nanos, mine, piece.received_before)
        sources[piece.organization_id] = _after(mine, drawn, now)
        legs += drawn.legs
        legs.append(Leg(AccountKind.ACCOUNTS_RECEIVABLE, drawn.owed_nanos))
        legs.append(Leg(AccountKind.REVENUE, -piece.nanos))
    return legs if any(leg.nanos for leg in legs) else []


def _after(sources: list[CreditSource], drawn: Draw, now: datetime) -> list[CreditSource]:
    """Return the sources as a draw leaves them; what had expired is given back first."""
    taken = {source.grant_id: part for source, part in drawn.taken}
    left = []
    for source in sources:
        part = taken.get(source.grant_id, 0)
        back = max(part - source.remaining_nanos, 0)
        if back:
            undo_expiry(source, back, now=now)
        left.append(
            replace(
                source,
                remaining_nanos=source.remaining_nanos + back - part,
                expired_nanos=source.expired_nanos - back,
            )
        )
    return left


def undo_expiry(source: CreditSource, nanos: int, *, now: datetime) -> None:
    """Give back what expiry took of a grant, for usage that was received before it."""
    rule = CREDIT_RULES[source.kind].expiry_reversal
    legs = transfer(rule, nanos, source.grant_id)
    post(rule, organization_id=source.organization_id, legs=legs, now=now)
    grant = CreditGrant.objects.get(id=source.grant_id)
    grant.expired_nanos -= nanos
    grant.save(update_fields=["expired_nanos"])
