"""Invoices are mailed once, with their document, to whom the profile names or who may pay."""

import pytest
from allauth.account.models import EmailAddress

from billing.credit.services.adjustments import write_off
from billing.credit.services.payments import record_payment
from billing.invoicing.announcing import recipients
from billing.invoicing.models import BillingProfile
from billing.invoicing.selectors import standing
from billing.invoicing.services.notes import issue_credit_note
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from control.permissions import Role
from control.webhooks.models import WebhookEvent
from control.webhooks.services import create_endpoint
from tests.fixtures.invoicing import (
    AFTER,
    OPERATOR,
    close,
    customer_of,
    finish_month,
    october,
    use_cents,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def addressed(org):
    """Acme, whose owner's address is verified."""
    EmailAddress.objects.create(user=org.owner, email=org.owner.email, verified=True, primary=True)
    return org


@pytest.fixture
def mailed(addressed, invoiced, mailoutbox):
    deliver_due(now=AFTER)
    return mailoutbox


def test_an_invoice_is_mailed_with_its_document(org, mailed, invoiced):
    (mail,) = mailed
    assert mail.to == [org.owner.email]
    assert mail.subject == "$10.00 for October 2026: invoice INV-000001"
    assert f"/{org.id}/invoices/{invoiced.id}" in mail.body
    ((name, content, kind),) = mail.attachments
    assert (name, kind) == ("INV-000001.pdf", "application/pdf")
    assert content.startswith(b"%PDF-")
    close()
    deliver_due(now=AFTER)
    assert len(mailed) == 1


def test_a_credit_note_is_mailed_too(mailed, invoiced):
    issue_credit_note(
        invoice_id=invoiced.id, idempotency_key="1", actor=OPERATOR, reason="a mistake", now=AFTER
    )
    deliver_due(now=AFTER)
    assert mailed[-1].subject == "$10.00 credited: credit note CN-000001"
    assert mailed[-1].attachments[0][0] == "CN-000001.pdf"


def test_who_has_paid_is_thanked_once(org, mailed, invoiced):
    for _ in range(2):
        record_payment(
            organization_id=org.id, amount_nanos=1000 * 10**7, idempotency_key="a",
            actor=OPERATOR, reason="bank transfer", now=AFTER,
        )  # fmt: skip
        deliver_due(now=AFTER)
    assert [mail.subject for mail in mailed[1:]] == ["Paid: invoice INV-000001, $10.00"]


def test_a_debt_that_is_given_up_is_told_nobody_as_paid(org, mailed, invoiced):
    create_endpoint(
        actor=org.actor, organization=org.organization, url="https://hooks.acme.example/in",
        event_types=["invoice.paid"],
    )  # fmt: skip
    write_off(
        organization_id=org.id, amount_nanos=1000 * 10**7, idempotency_key="w",
        actor=OPERATOR, reason="gone", now=AFTER,
    )  # fmt: skip
    deliver_due(now=AFTER)
    assert standing(invoiced).open_cents == 0
    assert len(mailed) == 1
    assert not WebhookEvent.objects.exists()


def test_a_debt_of_which_a_part_is_given_up_is_told_as_paid_once_the_rest_is(org, mailed, invoiced):
    write_off(
        organization_id=org.id, amount_nanos=400 * 10**7, idempotency_key="w",
        actor=OPERATOR, reason="a favour", now=AFTER,
    )  # fmt: skip
    assert standing(invoiced).state(AFTER.date()) == "open"
    record_payment(
        organization_id=org.id, amount_nanos=600 * 10**7, idempotency_key="a",
        actor=OPERATOR, reason="bank transfer", now=AFTER,
    )  # fmt: skip
    deliver_due(now=AFTER)
    assert standing(invoiced).state(AFTER.date()) == "paid"
    assert mailed[-1].subject.startswith("Paid: invoice")


def test_systems_are_told_of_the_invoice_and_its_payment(org, cents_price):
    create_endpoint(
        actor=org.actor, organization=org.organization, url="https://hooks.acme.example/in",
        event_types=["invoice.finalized", "invoice.paid"],
    )  # fmt: skip
    use_cents(customer_of(org), cents_price, 1000, october(30))
    finish_month()
    close()
    record_payment(
        organization_id=org.id, amount_nanos=1000 * 10**7, idempotency_key="a",
        actor=OPERATOR, reason="bank transfer", now=AFTER,
    )  # fmt: skip
    assert sorted(WebhookEvent.objects.values_list("event_type", flat=True)) == [
        "invoice.finalized",
        "invoice.paid",
    ]


def test_the_profile_names_others(org):
    org.join(Role.VIEWER)
    BillingProfile.objects.create(organization=org.organization, recipients=["pay@acme.example"])
    assert recipients(org.id) == ["pay@acme.example"]


def test_nobody_to_tell_stops_no_close(invoiced):
    assert not OutboxMessage.objects.filter(kind="mail").exists()
