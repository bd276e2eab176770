"""What must be refused, tried one after another with nobody beside it: nothing may come of it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
from django.db import DatabaseError, connection, transaction

from billing.credit.models import CreditGrant, GrantKind
from billing.credit.services.adjustments import issue_credit_note, refund, write_off
from billing.credit.services.grants import grant_credit, reverse_grant
from billing.credit.services.leases import acknowledge_overrun, release_lease
from billing.credit.services.payments import record_payment
from billing.metering.models import DeadLetter
from billing.metering.services import book_again, dismiss
from control.errors import NotPermitted, ServiceError
from control.permissions import Actor
from tests.simulation.cast import OPERATOR, Cast, Transfer, Wish
from tests.simulation.oracle import require

STRANGER = Actor("user", "user_1", "stranger@example.com")
GRANT_MAX, KEY_MAX = 10**18, 100
ENTRIES = "SELECT count(*), coalesce(sum(abs(nanos)), 0)::bigint FROM ledger_entry"
LEFT = "SELECT funded_nanos - posted_nanos FROM credit_budget WHERE budget_id = 'balance:' || %s"
JOIN = """
INSERT INTO ledger_entry (transaction_id, account_id, nanos)
SELECT transaction_id, account_id, nanos FROM ledger_entry
WHERE transaction_id = (SELECT min(id) FROM ledger_transaction)
"""
SMALL = 20_000


def check_refusals(cast: Cast, monitor: psycopg.Connection) -> None:
    """Make a grant, a payment and what puts them right, then all that contradicts them.

    Raises BrokenError where something is taken that must be refused, or moves money.
    """
    owner = cast.world.organization_ids[-1]
    _make(cast, owner, refundable=_left(monitor, owner))
    before = monitor.execute(ENTRIES).fetchone()
    for words, call, *given in _refused(cast, owner):
        _refuse(words, call, dict(given))
    after = monitor.execute(ENTRIES).fetchone()
    require(before == after, "What is refused moves no money", before, after)
    _check_sealed()


def _check_sealed() -> None:
    """No entry joins a transaction of before, balanced or not."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(JOIN)
            require(False, "No entry joins an old transaction")
    except DatabaseError as error:
        require("is sealed" in str(error), "Who joins an old transaction is told so", error)


def _left(monitor: psycopg.Connection, owner: str) -> int:
    row = monitor.execute(LEFT, [owner]).fetchone()
    return 0 if row is None else int(row[0])


def _common(cast: Cast, owner: str) -> dict[str, Any]:
    return {
        "organization_id": owner, "actor": OPERATOR, "reason": "simulated", "now": cast.now,
    }  # fmt: skip


def _make(cast: Cast, owner: str, *, refundable: int) -> None:
    """Make what may be contradicted, each twice: a repeat does nothing."""
    common, key = _common(cast, owner), "k" * KEY_MAX
    cast.wishes[key] = Wish(owner, GrantKind.PREPAID, SMALL, None)
    cast.payments[key] = Transfer(owner, "payment", SMALL, SMALL - 1)
    made = []
    for _ in range(2):
        made.append(
            grant_credit(
                kind=GrantKind.PREPAID, amount_nanos=SMALL, idempotency_key=key, **common
            ).pk
        )
        record_payment(amount_nanos=SMALL, tax_nanos=SMALL - 1, idempotency_key=key, **common)
        if refundable >= 0:  # then what was granted now is left
            cast.adjustments[key] = Transfer(owner, "refund", SMALL)
            refund(amount_nanos=SMALL, idempotency_key=key, **common)
    require(made[0] == made[1], "A repeat is answered with what was made", made)


def _refused(cast: Cast, owner: str) -> list[tuple[Any, ...]]:
    key = "k" * KEY_MAX
    common = [*_common(cast, owner).items()]
    fresh = [*common, ("idempotency_key", "another")]
    same = [*common, ("idempotency_key", key)]
    kind, other = ("kind", GrantKind.PREPAID), ("kind", GrantKind.PROMOTIONAL)
    cases: list[tuple[Any, ...]] = [
        ("a grant of another kind", grant_credit, *same, other, ("amount_nanos", SMALL)),
        ("a grant of another amount", grant_credit, *same, kind, ("amount_nanos", SMALL + 1)),
        ("a grant to nobody", grant_credit, *fresh, kind, ("amount_nanos", 1),
         ("organization_id", "org_none")),
        ("a payment of another amount", record_payment, *same, ("amount_nanos", SMALL + 1),
         ("tax_nanos", SMALL - 1)),
        ("a payment of another tax", record_payment, *same, ("amount_nanos", SMALL),
         ("tax_nanos", SMALL - 2)),
        ("a payment that is all tax", record_payment, *fresh, ("amount_nanos", 5),
         ("tax_nanos", 5)),
        ("a tax below zero", record_payment, *fresh, ("amount_nanos", 5), ("tax_nanos", -1)),
        ("a refund of too much", refund, *fresh, ("amount_nanos", GRANT_MAX)),
        ("a write-off of too much", write_off, *fresh, ("amount_nanos", GRANT_MAX)),
        ("a note of too much", issue_credit_note, *fresh, ("amount_nanos", GRANT_MAX)),
    ]  # fmt: skip
    if key in cast.adjustments:
        cases.append(("another refund", refund, *same, ("amount_nanos", SMALL - 1)))
    for nanos, name in ((0, "n"), (-1, "n"), (GRANT_MAX + 1, "n"), (1, ""), (1, key + "k")):
        given = [*common, ("amount_nanos", nanos), ("idempotency_key", name)]
        cases.append((f"a grant of {nanos} named {name}", grant_credit, *given, kind))
        cases.append((f"a payment of {nanos} named {name}", record_payment, *given))
        for words, call in (("refund", refund), ("write-off", write_off),
                            ("note", issue_credit_note)):  # fmt: skip
            cases.append((f"a {words} of {nanos} named {name}", call, *given))
    return cases + _by_strangers(cast, common)


def _by_strangers(cast: Cast, common: list[tuple[str, Any]]) -> list[tuple[Any, ...]]:
    """Nobody but an operator moves money, whatever there is to move."""
    now = [("actor", STRANGER), ("now", cast.now)]
    moves = [*common, *now, ("amount_nanos", 1), ("idempotency_key", "stranger")]
    about = [*now, ("reason", "mine")]
    cases: list[tuple[Any, ...]] = [
        ("a stranger's grant", grant_credit, *moves, ("kind", GrantKind.PREPAID)),
        ("a stranger's payment", record_payment, *moves),
        ("a stranger's refund", refund, *moves),
        ("a stranger's write-off", write_off, *moves),
        ("a stranger's note", issue_credit_note, *moves),
        ("a stranger's release", release_lease, *about, ("lease_id", 1)),
        ("a stranger's look", acknowledge_overrun, *about, ("lease_id", 1)),
    ]
    for grant in CreditGrant.objects.filter(closed_at__isnull=True)[:1]:
        cases.append(("a stranger's reversal", reverse_grant, *about, ("grant_id", grant.pk)))
    for grant in CreditGrant.objects.filter(closed_at__isnull=False)[:5]:
        given = [("actor", OPERATOR), ("now", cast.now), ("reason", "late"), ("grant_id", grant.pk)]
        cases.append(("a reversal of what is closed", reverse_grant, *given))
    for letter in DeadLetter.objects.all()[:1]:
        cases.append(("a stranger's booking", book_again, *now, ("letter", letter)))
        cases.append(("a stranger's dismissal", dismiss, *about, ("letter_id", letter.pk)))
    return cases


def _refuse(words: str, call: Callable[..., Any], given: dict[str, Any]) -> None:
    is_stranger = given["actor"] is STRANGER
    try:
        call(**given)
    except ServiceError as error:
        is_right = not is_stranger or isinstance(error, NotPermitted)
        require(is_right, "A stranger is told so", words, error)
    else:
        require(False, "What must be refused is", words)


def check_largest(cast: Cast) -> None:
    """The largest grant that may be made can be made, and taken back."""
    owner = cast.world.organization_ids[-1]
    grant = grant_credit(
        kind=GrantKind.PROMOTIONAL, amount_nanos=GRANT_MAX, idempotency_key="largest",
        expires_at=cast.now + timedelta(days=1), **_common(cast, owner),
    )  # fmt: skip
    taken = reverse_grant(actor=OPERATOR, grant_id=grant.pk, reason="enough", now=cast.now)
    require(taken == GRANT_MAX, "A grant is taken back whole", taken)
    again = {"actor": OPERATOR, "grant_id": grant.pk, "reason": "again", "now": cast.now}
    _refuse("a grant reversed twice", reverse_grant, again)
