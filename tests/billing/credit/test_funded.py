"""What funds a balance is what the ledger's transactions add to it, those of before included."""

from datetime import timedelta
from importlib import import_module

import psycopg
import pytest

from billing.credit.models import Budget, GrantKind
from billing.credit.services.adjustments import issue_credit_note, refund, write_off
from billing.credit.services.grants import expire_grants, reverse_grant
from billing.credit.services.payments import record_payment
from billing.credit.services.reversals import give_back, take_back
from billing.ledger.causes import Cause
from billing.ledger.models import Transaction
from control.permissions import Actor
from tests.fixtures.spending import agree, settle, use
from tests.fixtures.usage import NOW, Customer, give_credit

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
LATER = NOW + timedelta(hours=2)
FUNDED = {
    "grant": 135,  # 5 and 30 promotional, 100 prepaid
    "usage": 0,
    "payment": 400,  # 100 of 119 with 19 of tax, then 300
    "tax": 0,
    "allocation": 0,
    "correction": 25,
    "write_off": 15,
    "dispute": -50,  # of 59 with 9 of tax
    "dispute_reversal": 50,
    "refund": -40,
    "grant_reversal": -100,
    "expiry": -30,
    "expiry_reversal": 10,  # 10 were used before the expiry
}
"""What each cause of the life below adds, in nanos."""


def live(customer: Customer) -> None:
    """Let all happen to a customer that funds a balance, but for documents."""
    common = {"organization_id": customer.id, "actor": Actor.for_system("tests"), "now": NOW}
    words = common | {"reason": "test"}
    record_payment(**words, amount_nanos=119, tax_nanos=19, idempotency_key="p")
    mistake = give_credit(customer, 100)
    reverse_grant(actor=common["actor"], grant_id=mistake.id, reason="test", now=NOW)
    use(customer, 200)
    settle(customer)  # 100 are owed
    issue_credit_note(**words, amount_nanos=25, idempotency_key="n")
    write_off(**words, amount_nanos=15, idempotency_key="w")
    taken = {"amount_nanos": 50, "tax_nanos": 9, "key": "d"}
    take_back(**common, **taken, cause=Cause.DISPUTE)
    give_back(**common, **taken, cause=Cause.DISPUTE_REVERSAL)
    give_credit(customer, 5, kind=GrantKind.PROMOTIONAL, idempotency_key="early")
    record_payment(**words, amount_nanos=300, idempotency_key="q")  # 55 settle, 245 are credit
    refund(**words, amount_nanos=40, idempotency_key="r")
    give_credit(
        customer, 30, kind=GrantKind.PROMOTIONAL, expires_at=NOW + timedelta(minutes=1),
        idempotency_key="promotion",
    )  # fmt: skip
    expire_grants(now=LATER)
    use(customer, 10, before=NOW)
    settle(customer, now=LATER)


def funded() -> dict[str, int]:
    causes: dict[str, int] = {}
    for cause, nanos in Transaction.objects.values_list("kind", "funded_nanos"):
        causes[cause] = causes.get(cause, 0) + nanos
    return causes


def test_each_cause_funds_what_it_should_and_the_past_is_filled_in(
    customer, superuser_connection, owner_connection
):
    live(customer)
    assert funded() == FUNDED
    assert Budget.objects.get(kind="balance").funded_nanos == sum(FUNDED.values()) == 415
    assert agree(customer)
    before = dict(Transaction.objects.values_list("source", "funded_nanos"))
    superuser_connection.execute("UPDATE ledger_transaction SET funded_nanos = 0")
    owner_connection.execute(import_module("billing.ledger.migrations.0002_funded").FILL)
    assert dict(Transaction.objects.values_list("source", "funded_nanos")) == before
    with pytest.raises(psycopg.Error, match="Cannot update or delete"):
        owner_connection.execute("UPDATE ledger_transaction SET funded_nanos = 0")
