"""An overdue invoice from its day to suspension, and back within the transaction that pays."""

from datetime import timedelta

import pytest
from django.db import transaction

from billing.collection.models import Case, Settings, State, Step
from billing.collection.services.looking import look, look_at, wake_missed
from billing.credit.models import Budget
from billing.invoicing.services.disputes import close_dispute, open_dispute
from control.audit.models import AuditEvent
from control.organizations.models import DEFAULT_CREDIT_LIMIT_NANOS
from control.organizations.services import set_organization_terms
from control.outbox.services import deliver_due
from control.webhooks.models import WebhookEvent
from tests.fixtures.collecting import (
    case_of,
    day,
    mails,
    names,
    pass_days,
    pay,
    published,
    state_of,
)
from tests.fixtures.invoicing import OPERATOR, sound
from tests.fixtures.organizations import make_organization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
ALL = [
    ("retry", "reminded"), ("retry", "reminded"), ("retry", "reminded"), ("retry", "reminded"),
    ("limit", "limited"), ("suspend", "suspended"),
]  # fmt: skip


def line_of(org):
    """Return what an organization may owe now."""
    row = Budget.objects.get(organization_id=org.id, kind="balance")
    return row.limit_nanos - row.funded_nanos


def told():
    """Return the subjects of collection's mails."""
    words = ("Reminder", "Service for", "Payment of")
    return [each.subject for each in mails() if any(word in each.subject for word in words)]


@pytest.fixture
def recipients(org):
    """Invoices of Acme go to an address that is in its profile."""
    from billing.invoicing.models import BillingProfile

    BillingProfile.objects.update_or_create(
        organization_id=org.id, defaults={"recipients": ["money@acme.example"]}
    )


def test_before_it_is_due_nobody_is_told_anything(org, owing):
    assert look(now=day(0) - timedelta(hours=10)) == 0
    look(now=day(0) - timedelta(hours=1))  # the day, before the operator's hour
    assert (names(org), state_of(org)) == ([], State.RETRYING)


@pytest.mark.parametrize(
    ("number", "state"),
    [(0, "retrying"), (6, "retrying"), (7, "grace"), (9, "grace"), (10, "limited"),
     (13, "limited"), (14, "suspended"), (40, "suspended")],
)  # fmt: skip
def test_days_go_by(org, owing, number, state):
    pass_days(number)
    assert state_of(org) == state
    assert (published(org) == "suspended") == (state == "suspended")
    assert names(org) == ALL[: len(names(org))]


def test_all_steps_are_logged_audited_and_mailed_once(org, owing, recipients):
    pass_days(20)
    pass_days(20)
    assert names(org) == ALL
    actions = AuditEvent.objects.filter(action__startswith="collection.").values_list(
        "action", flat=True
    )
    assert sorted(actions) == ["collection.limited", *["collection.reminded"] * 4,
                               "collection.suspended"]  # fmt: skip
    assert told() == [
        *["Reminder: $10.00 is due for Acme"] * 4,
        "Service for Acme is limited",
        "Service for Acme is suspended",
    ]
    assert sound()


def test_a_mail_says_what_is_due_what_follows_and_where_to_pay(org, owing, recipients):
    look(now=day(0))
    [reminder] = [one for one in mails() if one.subject.startswith("Reminder")]
    text = str(reminder.body)
    for words in (owing.number, "$10.00", "18 November 2026", f"/{org.id}/billing"):
        assert words in text


def test_limited_suspends_the_credit_limit_and_paying_restores_it(org, owing):
    assert line_of(org) == DEFAULT_CREDIT_LIMIT_NANOS
    pass_days(10)
    assert line_of(org) == 0
    set_organization_terms(
        actor=OPERATOR, organization=org.organization, billing_mode="postpaid",
        spend_limit_nanos=5, weight=2, credit_limit_nanos=7,
    )  # fmt: skip
    assert line_of(org) == 0
    assert sound()
    pay(org, at=day(11))
    assert (line_of(org), state_of(org)) == (7, State.CURRENT)
    assert sound()


def test_payment_reinstates_in_its_own_transaction(org, owing, recipients):
    pass_days(14)
    assert published(org) == "suspended"
    with transaction.atomic():
        pay(org, at=day(15))
        assert published(org) == "active"
        transaction.set_rollback(True)
    assert published(org) == "suspended"
    pay(org, at=day(15))
    assert (published(org), state_of(org)) == ("active", State.CURRENT)
    assert names(org)[-1] == ("reinstate", "reinstated")
    assert told()[-1] == "Service for Acme is restored"
    assert WebhookEvent.objects.filter(event_type="invoice.paid").count() in (0, 1)
    pass_days(60, 16)
    assert state_of(org) == State.CURRENT
    assert sound()


def test_a_part_does_not_reinstate(org, owing):
    pass_days(14)
    pay(org, 400, at=day(15))
    assert published(org) == "suspended"
    look(now=day(15))
    assert case_of(org).due_cents == 600
    pay(org, 550, at=day(16))  # less than a dollar is left
    assert published(org) == "active"


def test_a_disputed_invoice_is_left_alone_and_goes_on_with_notice(org, owing):
    pass_days(7)
    open_dispute(invoice_id=owing.id, key="d", actor=OPERATOR, reason="wrong", now=day(8))
    pass_days(40, 8)
    assert state_of(org) == State.CURRENT
    close_dispute(invoice_id=owing.id, key="d", actor=OPERATOR, now=day(40))
    look(now=day(40))
    assert state_of(org) == State.RETRYING
    pass_days(49, 41)
    assert state_of(org) == State.GRACE  # it begins anew: ten days from its first step
    pass_days(54, 50)
    assert state_of(org) == State.SUSPENDED


def test_a_dispute_ends_a_suspension(org, owing):
    pass_days(14)
    open_dispute(invoice_id=owing.id, key="d", actor=OPERATOR, reason="wrong", now=day(15))
    deliver_due(now=day(15))
    assert (published(org), state_of(org)) == ("active", State.CURRENT)


def test_what_was_found_late_has_the_same_notice(org, owing):
    look(now=day(100))
    assert state_of(org) == State.RETRYING
    pass_days(109, 101)
    assert state_of(org) == State.GRACE
    pass_days(114, 110)
    assert state_of(org) == State.SUSPENDED


def test_who_owes_less_than_the_least_is_left_alone(org, owing):
    Settings.objects.update(min_cents=1001)
    pass_days(20)
    assert names(org) == []


def test_an_operators_own_suspension_is_not_ended_by_a_payment(org, owing):
    from control.organizations.services import suspend_organization

    pass_days(10)
    suspend_organization(actor=OPERATOR, organization=org.organization, reason="abuse")
    pass_days(14, 11)
    pay(org, at=day(15))
    assert published(org) == "suspended"


def test_a_look_before_its_time_does_nothing(org, owing):
    look(now=day(0))
    before = Step.objects.count()
    look_at(org.id, now=day(0))
    assert Step.objects.count() == before


def test_who_was_missed_is_found(org, owing):
    Case.objects.all().delete()
    assert look(now=day(3)) == 0
    assert wake_missed(now=day(3)) == 1
    look(now=day(3))
    assert names(org) == [("retry", "reminded")]
    assert wake_missed(now=day(3)) == 0


def test_an_outsider_is_never_touched(org, outsider, owing):
    pass_days(20)
    assert not Case.objects.filter(pk=outsider.id).exists()
    assert published(outsider) == "active"
    assert make_organization("Third").organization.is_active
