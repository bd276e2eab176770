"""The deeds of a plan, made into calls of the real services.

A deed first decides what to do by what its actor knows, without a database; then calls; then hears
what came of it, unless its caller died or the answer was lost.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from string import ascii_letters
from typing import Any

from billing.credit.models import GrantKind
from billing.credit.selectors import balance_nanos, owed_nanos
from billing.credit.services.adjustments import issue_credit_note, refund, write_off
from billing.credit.services.grants import expire_grants, grant_credit, reverse_grant
from billing.credit.services.leases import (
    ClockAheadError,
    answer,
    release_lease,
    void_abandoned_leases,
)
from billing.credit.services.payments import record_payment
from billing.following.closing import close_days
from billing.following.follow import FOLLOWERS, follow
from billing.following.posting import post_due
from billing.following.sealing import seal_days
from billing.ledger.models import AccountKind
from billing.ledger.selectors import balance_nanos as ledger_nanos
from billing.metering.ingest import ingest
from billing.simulation.audit import content_of
from billing.simulation.gateway import Gateway
from billing.simulation.oracle import require
from billing.simulation.plan import GATEWAYS, Deed
from billing.simulation.world import World
from control.actor import system
from control.errors import Refusal
from control.tenants.models import Organization, Project
from control.tenants.services.organizations import set_organization_limit, set_organization_terms
from control.tenants.services.projects import set_project_limit
from serving.contract.codec import decode, encode
from serving.contract.lease import LeaseReply, LeaseRequest
from serving.contract.usage import UsageEvent

OPERATOR = system("simulation")
SKEW_MAX_SECONDS = 240
ADJUSTMENTS: dict[str, Callable[..., Any]] = {
    "refund": refund,
    "write-off": write_off,
    "credit-note": issue_credit_note,
}


@dataclass(frozen=True, slots=True)
class Wish:
    """A grant that the operator wants, by its idempotency key."""

    organization_id: str
    kind: GrantKind
    amount_nanos: int
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Transfer:
    """A payment, or money put right, that the operator books by its idempotency key."""

    organization_id: str
    kind: str
    amount_nanos: int
    tax_nanos: int = 0


@dataclass(slots=True)
class Cast:
    """Who acts, and what they remember."""

    world: World
    gateways: list[Gateway]
    wishes: dict[str, Wish] = field(default_factory=dict)
    payments: dict[str, Transfer] = field(default_factory=dict)
    adjustments: dict[str, Transfer] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    """Leases that an operator gave up."""
    acknowledged: set[str] = field(default_factory=set)
    acknowledged_real: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    contents: dict[str, set[tuple[object, ...]]] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        """The moment by billing's clock."""
        return self.world.clock.now


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call to make, in words, and what to do with its value."""

    words: str
    work: Callable[[], Any]
    hear: Callable[[Any], None] = lambda _: None
    allowed: tuple[type[Exception], ...] = ()
    request: LeaseRequest | None = None
    must_fail: bool = False
    """Whether only one of the allowed errors will do."""


def make_cast(world: World, rng: random.Random) -> Cast:
    """Return the gateways, each with a clock of its own."""
    gateways = []
    for number in range(GATEWAYS):
        skew = timedelta(seconds=rng.randint(-SKEW_MAX_SECONDS, SKEW_MAX_SECONDS))
        gateways.append(Gateway(f"gw{number}", world, skew))
    return Cast(world, gateways)


def prepare(cast: Cast, deed: Deed, name: str) -> Prepared | None:
    """Return the call that a deed is; None where it is none, or there is nothing to do."""
    rng = random.Random(deed.salt)  # noqa: S311
    return DEEDS[deed.kind](cast, deed, rng, name)


def _poll(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    gateway, now = cast.gateways[deed.actor], cast.now
    gateway.serve(rng, rng.randint(1, 7))
    request = gateway.poll(rng)
    words = (
        f"{gateway.gateway_id} polls with {len(request.asks)} asks, {len(request.returns)} returns"
    )
    return Prepared(
        words,
        lambda: through_contract(request, now=now),
        lambda reply: gateway.hear(request, reply, rng),
        (ClockAheadError,) if gateway.skew > timedelta(minutes=5) else (),
        request,
    )


def through_contract(request: LeaseRequest, *, now: datetime) -> LeaseReply:
    """Poll as over the wire: both sides read what the contract lets them say."""
    reply = answer(decode(encode(request), LeaseRequest), now=now)
    return decode(encode(reply), LeaseReply)


def _ship(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared | None:
    gateway, now = cast.gateways[deed.actor], cast.now
    gateway.serve(rng, rng.randint(0, 4))
    batch = gateway.batch(rng)
    if not batch.events:
        return None
    return Prepared(
        f"{gateway.gateway_id} ships {len(batch.events)} events",
        lambda: ingest(batch, now=now),
        lambda receipt: hear_receipt(cast, gateway, batch, receipt),
        (ClockAheadError,) if gateway.skew > timedelta(minutes=5) else (),
    )


def hear_receipt(cast: Cast, gateway: Gateway, batch: Any, receipt: Any) -> None:
    """Note what billing says it has committed."""
    parts = receipt.accepted + receipt.duplicates + len(receipt.dead_lettered)
    require(parts == len(batch.events), "A receipt accounts for its batch", receipt)
    gateway.acknowledge(batch)
    dead = {one.event_id for one in receipt.dead_lettered}
    cast.dead |= dead
    for raw in batch.events:
        event_id = gateway.journal.payloads[bytes(raw)]
        if event_id not in dead:
            cast.acknowledged.add(event_id)
            if b'"outcome":"gateway_lost"' not in bytes(raw):
                cast.acknowledged_real.add(event_id)
                told = content_of(decode(raw, UsageEvent))
                cast.contents.setdefault(event_id, set()).add(told)


def _grant(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    expires_in = rng.choice((None, None, rng.randint(60, 3600), rng.randint(3600, 2 * 86400)))
    wish = Wish(
        rng.choice(cast.world.organization_ids),
        rng.choice((GrantKind.PROMOTIONAL, GrantKind.PREPAID)),
        rng.randrange(1, rng.choice((2, 60_000, 60_000, 400_000, 4_000_000, 4_000_000))),
        None if expires_in is None else cast.now + timedelta(seconds=expires_in),
    )
    if cast.wishes and rng.random() < 0.06:
        return _contradict(cast, rng)
    key = rng.choice((f"grant {name}", rng.choice(ascii_letters)))
    if cast.wishes and rng.random() < 0.1:
        key = rng.choice([*cast.wishes])
    wish = cast.wishes.setdefault(key, wish)
    now = cast.now
    words = f"operator grants {wish.organization_id} {wish.amount_nanos} until {wish.expires_at}"
    return Prepared(words, lambda: make_grant(key, wish, now))


def _contradict(cast: Cast, rng: random.Random) -> Prepared:
    """Name a grant that was wanted before with nothing, or with another amount."""
    key, now = rng.choice([*cast.wishes]), cast.now
    made = replace(cast.wishes[key], amount_nanos=rng.choice((0, -1, 5)))
    words = f"operator contradicts {key!r} with {made.amount_nanos}"

    def work() -> None:
        make_grant(key, cast.wishes[key], now)
        make_grant(key, made, now)

    return Prepared(words, work, allowed=(Refusal,), must_fail=made != cast.wishes[key])


def make_grant(key: str, wish: Wish, now: datetime) -> Any:
    """Make a grant, or find that it was made."""
    return grant_credit(
        organization_id=wish.organization_id, kind=wish.kind, amount_nanos=wish.amount_nanos,
        idempotency_key=key, actor=OPERATOR, reason="simulated", now=now,
        expires_at=wish.expires_at,
    )  # fmt: skip


def _limit(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    nanos = rng.choice((None, rng.randrange(1_000_000), rng.randrange(60_000)))
    if rng.random() < 0.5:
        organization_id = rng.choice(cast.world.organization_ids)
        return Prepared(
            f"operator limits {organization_id} to {nanos}",
            lambda: set_organization_limit(
                actor=OPERATOR, spend_limit_nanos=nanos,
                organization=Organization.objects.get(id=organization_id),
            ),
        )  # fmt: skip
    project_id = rng.choice(sorted({caller.project_id for caller in cast.world.callers}))
    return Prepared(
        f"operator limits {project_id} to {nanos}",
        lambda: set_project_limit(
            actor=OPERATOR, spend_limit_nanos=nanos, project=Project.objects.get(id=project_id)
        ),
    )


def _terms(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    organization_id = rng.choice(cast.world.organization_ids)
    mode = rng.choice(("prepaid", "prepaid", "postpaid"))
    limit = cast.world.limits[organization_id]
    return Prepared(
        f"operator makes {organization_id} {mode}",
        lambda: set_organization_terms(
            actor=OPERATOR, billing_mode=mode, spend_limit_nanos=limit, weight=1,
            organization=Organization.objects.get(id=organization_id),
        ),
    )  # fmt: skip


def _reverse(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared | None:
    if not cast.wishes:
        return None
    key, now = rng.choice(sorted(cast.wishes)), cast.now
    wish = cast.wishes[key]

    def work() -> int:
        grant = make_grant(key, wish, now)
        return reverse_grant(actor=OPERATOR, grant_id=grant.id, reason="mistake", now=now)

    return Prepared(f"operator reverses {key!r}", work, allowed=(Refusal,))


def _pay(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    amount = rng.randrange(1, rng.choice((60_000, 2_000_000)))
    tax = rng.choice((0, amount // 5))
    owner, now = rng.choice(cast.world.organization_ids), cast.now
    wish = cast.payments.setdefault(f"payment {name}", Transfer(owner, "payment", amount, tax))
    words = f"{owner} pays {amount}, {tax} of it tax"
    return Prepared(words, lambda: make_payment(f"payment {name}", wish, now))


def make_payment(key: str, wish: Transfer, now: datetime) -> Any:
    """Book a payment, or find that it was booked."""
    return record_payment(
        organization_id=wish.organization_id, amount_nanos=wish.amount_nanos, idempotency_key=key,
        actor=OPERATOR, reason="simulated", now=now, tax_nanos=wish.tax_nanos,
    )  # fmt: skip


def _adjust(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    kind = rng.choice([*ADJUSTMENTS])
    owner, now = rng.choice(cast.world.organization_ids), cast.now
    guess = rng.choice((None, rng.randrange(1, 300_000)))

    def work() -> None:
        shown = owed_nanos(owner) if kind == "write-off" else balance_nanos(owner)
        amount = guess or max(shown, 1)
        cast.adjustments[name] = Transfer(owner, kind, amount)
        ADJUSTMENTS[kind](
            organization_id=owner, amount_nanos=amount, idempotency_key=name, actor=OPERATOR,
            reason="simulated", now=now,
        )  # fmt: skip

    return Prepared(
        f"operator makes a {kind} of {guess or 'all there is'} to {owner}", work, allowed=(Refusal,)
    )


def credit_everything(cast: Cast, organization_id: str) -> None:
    """Give all revenue back, once; nothing else under that name."""
    earned = -ledger_nanos(organization_id, AccountKind.REVENUE)
    if earned > 0:
        _put_right(cast, "credit-note", organization_id, earned)


def write_off_everything(cast: Cast, organization_id: str) -> None:
    """Give up what an organization owes, to the nano, once; nothing else under that name."""
    owed = owed_nanos(organization_id)
    if owed > 0:
        _put_right(cast, "write-off", organization_id, owed)
        require(owed_nanos(organization_id) == 0, "A debt given up is none", organization_id)


def _put_right(cast: Cast, kind: str, organization_id: str, nanos: int) -> None:
    """Put all of it right, say so again, and contradict that."""
    key = f"last {organization_id}"
    cast.adjustments[key] = Transfer(organization_id, kind, nanos)
    for amount in (nanos, nanos, nanos + 1):
        try:
            ADJUSTMENTS[kind](
                organization_id=organization_id, amount_nanos=amount, idempotency_key=key,
                actor=OPERATOR, reason="last", now=cast.now,
            )  # fmt: skip
        except Refusal as error:
            require(amount > nanos, "All of it can be put right", kind, organization_id, error)
        else:
            require(amount == nanos, "What contradicts itself is refused", organization_id, amount)


def _release(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    lease_id, now = rng.randint(1, 40), cast.now
    cast.released.add(lease_id)
    return Prepared(
        f"operator releases lease {lease_id}",
        lambda: release_lease(actor=OPERATOR, lease_id=lease_id, reason="lost", now=now),
        allowed=(Refusal,),
    )


def _expire(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat expires grants", lambda: expire_grants(now=now))


def _void(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat voids abandoned leases", lambda: void_abandoned_leases(now=now))


def _follow(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    who, now, events = rng.choice([*FOLLOWERS]), cast.now, rng.choice((1, 2, 1000))
    return Prepared(
        f"{who} are followed by pages of {events}", lambda: follow(who, now=now, events=events)
    )


def _post(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat posts closed days", lambda: post_due(now=now))


def _close(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat closes days", lambda: close_days(now=now))


def _seal(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    now = cast.now
    return Prepared("beat seals days", lambda: seal_days(now=now))


def _die(cast: Cast, deed: Deed, rng: random.Random, name: str) -> None:
    cast.gateways[deed.actor].die(rng, journal_is_lost=rng.random() < 0.3)


def _skew(cast: Cast, deed: Deed, rng: random.Random, name: str) -> None:
    seconds = rng.choice((360, rng.randint(-SKEW_MAX_SECONDS, SKEW_MAX_SECONDS)))
    cast.gateways[deed.actor].skew = timedelta(seconds=seconds)


def _repeat(cast: Cast, deed: Deed, rng: random.Random, name: str) -> None:
    cast.gateways[deed.actor].repeat_otherwise(rng)


DEEDS: dict[str, Callable[[Cast, Deed, random.Random, str], Prepared | None]] = {
    "poll": _poll,
    "ship": _ship,
    "grant": _grant,
    "limit": _limit,
    "terms": _terms,
    "reverse": _reverse,
    "release": _release,
    "pay": _pay,
    "adjust": _adjust,
    "follow": _follow,
    "post": _post,
    "close": _close,
    "seal": _seal,
    "expire": _expire,
    "void": _void,
    "die": _die,
    "skew": _skew,
    "repeat": _repeat,
}
