"""What the operator does with money: grants, payments, and what puts them right."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from string import ascii_letters
from typing import Any

from billing.credit.models import GrantKind
from billing.credit.selectors import balance_nanos, owed_nanos
from billing.credit.services.adjustments import issue_credit_note, refund, write_off
from billing.credit.services.grants import grant_credit, reverse_grant
from billing.credit.services.leases import release_lease
from billing.credit.services.payments import record_payment
from control.errors import ServiceError
from tests.simulation.cast import OPERATOR, Cast, Prepared, Transfer, Wish
from tests.simulation.plan import Deed

ADJUSTMENTS: dict[str, Callable[..., Any]] = {
    "refund": refund,
    "write-off": write_off,
    "credit-note": issue_credit_note,
}


def _grant(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    expires_in = rng.choice((None, None, rng.randint(60, 3600), rng.randint(3600, 2 * 86400)))
    wish = Wish(
        rng.choice(cast.world.organization_ids),
        rng.choice((GrantKind.PROMOTIONAL, GrantKind.PREPAID)),
        cast.world.scaled(
            rng, rng.randrange(1, rng.choice((2, 60_000, 60_000, 400_000, 4_000_000, 4_000_000)))
        ),
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

    return Prepared(words, work, allowed=(ServiceError,), must_fail=made != cast.wishes[key])


def make_grant(key: str, wish: Wish, now: datetime) -> Any:
    """Make a grant, or find that it was made."""
    return grant_credit(
        organization_id=wish.organization_id, kind=wish.kind, amount_nanos=wish.amount_nanos,
        idempotency_key=key, actor=OPERATOR, reason="simulated", now=now,
        expires_at=wish.expires_at,
    )  # fmt: skip


def _reverse(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared | None:
    if not cast.wishes:
        return None
    key, now = rng.choice(sorted(cast.wishes)), cast.now
    wish = cast.wishes[key]

    def work() -> int:
        grant = make_grant(key, wish, now)
        return reverse_grant(actor=OPERATOR, grant_id=grant.id, reason="mistake", now=now)

    return Prepared(f"operator reverses {key!r}", work, allowed=(ServiceError,))


def _pay(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    amount = cast.world.scaled(rng, rng.randrange(1, rng.choice((60_000, 2_000_000))))
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
    guess = rng.choice((None, cast.world.scaled(rng, rng.randrange(1, 300_000))))

    def work() -> None:
        shown = owed_nanos(owner) if kind == "write-off" else balance_nanos(owner)
        amount = guess or max(shown, 1)
        cast.adjustments[name] = Transfer(owner, kind, amount)
        ADJUSTMENTS[kind](
            organization_id=owner, amount_nanos=amount, idempotency_key=name, actor=OPERATOR,
            reason="simulated", now=now,
        )  # fmt: skip

    return Prepared(
        f"operator makes a {kind} of {guess or 'all there is'} to {owner}",
        work,
        allowed=(ServiceError,),
    )


def _release(cast: Cast, deed: Deed, rng: random.Random, name: str) -> Prepared:
    lease_id, now = rng.randint(1, 40), cast.now
    cast.released.add(lease_id)
    return Prepared(
        f"operator releases lease {lease_id}",
        lambda: release_lease(actor=OPERATOR, lease_id=lease_id, reason="lost", now=now),
        allowed=(ServiceError,),
    )


DEEDS = {
    "grant": _grant,
    "reverse": _reverse,
    "pay": _pay,
    "adjust": _adjust,
    "release": _release,
}
