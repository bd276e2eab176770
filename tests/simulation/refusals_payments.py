"""What must be refused of payments and promotional codes, and what a code is worth: tried with
nobody beside it, before payments come to rest."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
from allauth.account.models import EmailAddress

from billing.credit.models import GrantKind
from billing.payments.errors import StripeAway
from billing.payments.models import PaymentMethod, PaymentStatus, StripePayment
from billing.payments.services import refund_payment, start_checkout, top_up
from billing.payments.services.asking import (
    TOP_UP_MAX_CENTS,
    TOP_UP_MIN_CENTS,
    quote_top_up,
)
from billing.payments.services.automatic import set_auto_top_up
from billing.payments.services.codes import end_code, make_code, redeem_code
from billing.payments.services.refunding import refundable_cents
from billing.payments.services.sessions import start_method
from billing.payments.services.unmatched import credit_gap, dismiss_gap
from control.accounts.models import User
from control.errors import NotPermitted, ObjectNotFound, ServiceError
from control.organizations.models import Membership, Organization
from control.permissions import Role
from tests.simulation.cast import OPERATOR, Cast, Wish
from tests.simulation.documents import half_up
from tests.simulation.oracle import require
from tests.simulation.payers import TopUp
from tests.simulation.refusals import GRANT_MAX, KEY_MAX, STRANGER

WORTH, DAYS = 30_000, 5
LONGEST_KEY = 64
STATE = """
/* All that a refused wish could have left behind. */
SELECT (SELECT count(*) FROM payments_payment), (SELECT count(*) FROM payments_refund),
    (SELECT count(*) FROM payments_promotional_code), (SELECT count(*) FROM payments_redemption),
    (SELECT json_agg(one ORDER BY organization_id) FROM payments_auto_top_up AS one)::text,
    (SELECT count(*) FROM ledger_entry)
"""
Call = Callable[[], object]


def check_payment_refusals(cast: Cast, monitor: psycopg.Connection) -> None:
    """Raise BrokenError where something is taken that must be refused, or leaves anything behind,
    or a code is worth another amount or redeemed once more."""
    owner = Organization.objects.get(id=cast.world.organization_ids[-1])
    _check_quote(cast, owner)
    _page(cast, owner)
    _redeem(cast, owner)
    before = monitor.execute(STATE).fetchone()
    for words, call in _senseless(cast, owner):
        _refuse(words, call, ServiceError)
    for words, call in _by_strangers(cast, owner):
        _refuse(words, call, (NotPermitted, ObjectNotFound))
    after = monitor.execute(STATE).fetchone()
    require(before == after, "What is refused of payments leaves nothing", before, after)


def _refuse(
    words: str, call: Call, wanted: type[ServiceError] | tuple[type[ServiceError], ...]
) -> None:
    try:
        call()
    except ServiceError as error:
        require(isinstance(error, wanted), "A refusal is of the right kind", words, error)
    else:
        require(False, "What must be refused of payments is", words)


def _check_quote(cast: Cast, owner: Organization) -> None:
    for cents in (TOP_UP_MIN_CENTS, TOP_UP_MIN_CENTS + 1, TOP_UP_MAX_CENTS):
        quote = quote_top_up(organization=owner, amount_cents=cents, actor=OPERATOR, now=cast.now)
        rate = cast.world.tax_rates.get(owner.id, 0)
        total = cents + half_up(cents * rate, 10_000)
        require(quote.total_cents == total, "A quote is the amount and its tax", quote, total)


def _page(cast: Cast, owner: Organization) -> None:
    """The shortest and the longest name of a wish, and the least of an amount, are taken."""
    for key in ("?", "?" * LONGEST_KEY):
        cast.payers.top_ups[owner.id, key] = TopUp(TOP_UP_MIN_CENTS, None)
        try:
            _paging(cast, owner, OPERATOR, TOP_UP_MIN_CENTS, key)()
        except StripeAway:
            continue  # the wish is written down all the same


def _redeem(cast: Cast, owner: Organization) -> None:
    """A code is redeemed once by each, and by no more than it is for; what it gives is a grant."""
    common: dict[str, Any] = {"amount_nanos": WORTH, "actor": OPERATOR, "now": cast.now}
    make_code(code=" spring-26 ", credit_days=DAYS, redemptions_max=2, **common)
    make_code(code="SHORT", expires_at=cast.now + timedelta(seconds=1), **common)
    make_code(code="ENDED", **common)
    end_code(code="ended", actor=OPERATOR, now=cast.now)
    people = [_person(number, owner) for number in range(3)]
    later = cast.now + timedelta(seconds=1)
    for person in people[:2]:
        redeem_code(organization=owner, user=person, code="Spring-26", now=cast.now)
        key = f"code:SPRING-26:{person.pk}"[:KEY_MAX]
        ends_at = cast.now + timedelta(days=DAYS)
        cast.wishes[key] = Wish(owner.id, GrantKind.PROMOTIONAL, WORTH, ends_at)
    for words, person, code, now in (
        ("a code once more", people[0], "SPRING-26", cast.now),
        ("a code that is used up", people[2], "SPRING-26", cast.now),
        ("a code whose time is over", people[2], "SHORT", later),
        ("a code that was ended", people[2], "ENDED", cast.now),
        ("no code", people[2], "NONE", cast.now),
    ):
        _refuse(words, _redeeming(owner, person, code, now), ServiceError)


def _redeeming(owner: Organization, person: User, code: str, now: Any) -> Call:
    return lambda: redeem_code(organization=owner, user=person, code=code, now=now)


def _person(number: int, owner: Organization) -> User:
    person = User.objects.create_user(f"person{number}@example.com")
    EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)
    Membership.objects.create(user=person, organization=owner, role=Role.OWNER)
    return person


def _senseless(cast: Cast, owner: Organization) -> list[tuple[str, Call]]:
    cases: list[tuple[str, Call]] = []
    for cents, key in (
        (TOP_UP_MIN_CENTS - 1, "x"), (TOP_UP_MAX_CENTS + 1, "x"), (-TOP_UP_MIN_CENTS, "x"),
        (TOP_UP_MIN_CENTS, ""), (TOP_UP_MIN_CENTS, "x" * (LONGEST_KEY + 1)),
    ):  # fmt: skip
        cases.append(
            (f"a top-up of {cents} named {key!r}", _paging(cast, owner, OPERATOR, cents, key))
        )
    for word, worth, days in (
        ("", WORTH, None), ("TWO WORDS", WORTH, None), ("ÄÖÜ", WORTH, None), ("-", WORTH, None),
        ("X" * 65, WORTH, None), ("ZERO", 0, None), ("HUGE", GRANT_MAX + 1, None),
        ("DAYS", WORTH, 0), ("DAYS", WORTH, 3_651), ("SPRING-26", WORTH, None),
    ):  # fmt: skip
        cases.append((f"a code {word!r} of {worth}", _coding(cast, OPERATOR, word, worth, days)))
    cases.append(("a cap below one top-up", _setting(cast, owner, OPERATOR, 1_000, 999)))
    for payment in StripePayment.objects.filter(status=PaymentStatus.SUCCEEDED)[:1]:
        left = refundable_cents(payment.id)
        for cents, key in ((0, "x"), (-1, "x"), (left + 1, "x"), (1, ""), (1, "x" * 65)):
            cases.append((f"a refund of {cents}", _refunding(cast, payment, OPERATOR, cents, key)))
    method = PaymentMethod.objects.filter(organization_id=owner.id, detached_at=None).first()
    if method is not None:
        cases.append(("another total than was shown", lambda: top_up(
            organization=owner, amount_cents=TOP_UP_MIN_CENTS, method=method,
            idempotency_key="total", actor=OPERATOR, now=cast.now, agreed_cents=1,
        )))  # fmt: skip
    return cases


def _by_strangers(cast: Cast, owner: Organization) -> list[tuple[str, Call]]:
    """Nobody but members and operators asks for anything, whatever there is."""
    about: dict[str, Any] = {"gap_id": 0, "reason": "mine", "actor": STRANGER, "now": cast.now}
    cases: list[tuple[str, Call]] = [
        ("a stranger's page", _paging(cast, owner, STRANGER, TOP_UP_MIN_CENTS, "x")),
        ("a stranger's code", _coding(cast, STRANGER, "MINE", WORTH, None)),
        ("a stranger's automatic top-up", _setting(cast, owner, STRANGER, 1_000, 1_000)),
        ("a stranger's card",
         lambda: start_method(organization=owner, actor=STRANGER, now=cast.now)),
        ("a stranger's end", lambda: end_code(code="SHORT", actor=STRANGER, now=cast.now)),
    ]  # fmt: skip
    for payment in StripePayment.objects.filter(status=PaymentStatus.SUCCEEDED)[:1]:
        cases.append(("a stranger's refund", _refunding(cast, payment, STRANGER, 1, "x")))
    for words, call in (("credit", lambda: credit_gap(organization_id=owner.id, **about)),
                        ("dismissal", lambda: dismiss_gap(**about))):  # fmt: skip
        _refuse(f"a stranger's {words} of a gap", call, NotPermitted)
    return cases


def _paging(cast: Cast, owner: Organization, actor: Any, cents: int, key: str) -> Call:
    return lambda: start_checkout(
        organization=owner, amount_cents=cents, idempotency_key=key, actor=actor, now=cast.now
    )


def _coding(cast: Cast, actor: Any, word: str, worth: int, days: int | None) -> Call:
    return lambda: make_code(
        code=word, amount_nanos=worth, credit_days=days, actor=actor, now=cast.now
    )


def _setting(cast: Cast, owner: Organization, actor: Any, cents: int, cap: int) -> Call:
    return lambda: set_auto_top_up(
        organization=owner, is_on=False, threshold_cents=0, amount_cents=cents,
        monthly_cap_cents=cap, actor=actor, now=cast.now,
    )  # fmt: skip


def _refunding(cast: Cast, payment: StripePayment, actor: Any, cents: int, key: str) -> Call:
    return lambda: refund_payment(
        payment_id=payment.id, amount_cents=cents, idempotency_key=key, actor=actor,
        reason="simulated", now=cast.now,
    )  # fmt: skip
