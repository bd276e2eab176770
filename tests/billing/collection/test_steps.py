"""An overdue invoice from its day to suspension, and back within the transaction that pays."""

from datetime import timedelta

import pytest
from django.db import transaction

from billing.collection.models import Case, Settings, State, Step
from billing.collection.services.looking import look, look_at, wake_missed
from billing.credit.models import Budget
from billing.invoicing.services.disputes import close_dispute, open_dispute
from control.audit.models import Deed
from control.outbox.services import deliver_due
from control.tenants.services import set_organization_terms
from control.webhooks.models import Event
from tests.support.collecting import (
    case_of,
    day,
    mails,
    names,
    owe,
    pass_days,
    pay,
    published,
    state_of,
)
from tests.support.invoicing import OPERATOR, sound
from tests.support.organizations import make_house

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
ALL = [
    ("retry", "reminded"), ("retry", "reminded"), ("retry", "reminded"), ("retry", "reminded"),
    ("limit", "limited"), ("suspend", "suspended"),
]  # fmt: skip


def line_of(house):
    return Budget.objects.get(organization_id=house.id, kind="balance").limit_nanos


def told():
    """Return the subjects of collection's mails."""
    words = ("Reminder", "service of", "Payment of")
    return [each.subject for each in mails() if any(word in each.subject for word in words)]


@pytest.fixture
def recipients(house):
    """Invoices of Acme go to an address that is in its profile."""
    from billing.invoicing.models import BillingProfile

    BillingProfile.objects.update_or_create(
        organization_id=house.id, defaults={"recipients": ["money@acme.example"]}
    )


def test_before_it_is_due_nobody_is_told_anything(house, owing):
    assert look(now=day(0) - timedelta(hours=10)) == 0
    look(now=day(0) - timedelta(hours=1))  # the day, before the operator's hour
    assert (names(house), state_of(house)) == ([], State.RETRYING)


@pytest.mark.parametrize(
    ("number", "state"),
    [(0, "retrying"), (6, "retrying"), (7, "grace"), (9, "grace"), (10, "limited"),
     (13, "limited"), (14, "suspended"), (40, "suspended")],
)  # fmt: skip
def test_days_go_by(house, owing, number, state):
    pass_days(number)
    assert state_of(house) == state
    assert (published(house) == "suspended") == (state == "suspended")
    assert names(house) == ALL[: len(names(house))]


def test_all_steps_are_logged_audited_and_mailed_once(house, owing, recipients):
    pass_days(20)
    pass_days(20)
    assert names(house) == ALL
    actions = Deed.objects.filter(action__startswith="collection.").values_list("action", flat=True)
    assert sorted(actions) == ["collection.limited", *["collection.reminded"] * 4,
                               "collection.suspended"]  # fmt: skip
    assert told() == [
        *["Reminder: $10.00 of Acme is due"] * 4,
        "The service of Acme is limited",
        "The service of Acme is suspended",
    ]
    assert sound()


def test_a_mail_says_what_is_due_what_follows_and_where_to_pay(house, owing, recipients):
    look(now=day(0))
    [reminder] = [one for one in mails() if one.subject.startswith("Reminder")]
    text = str(reminder.body)
    for words in (owing.number, "$10.00", "18 November 2026", f"/{house.id}/billing"):
        assert words in text


def test_limited_is_no_credit_line_and_paying_gives_it_back(house, owing):
    assert line_of(house) is None
    pass_days(10)
    assert line_of(house) == 0
    set_organization_terms(
        actor=OPERATOR, organization=house.organization, billing_mode="postpaid",
        spend_limit_nanos=5, weight=2,
    )  # fmt: skip
    assert line_of(house) == 0
    pay(house, at=day(11))
    assert (line_of(house), state_of(house)) == (None, State.CURRENT)


def test_payment_reinstates_in_its_own_transaction(house, owing, recipients):
    pass_days(14)
    assert published(house) == "suspended"
    with transaction.atomic():
        pay(house, at=day(15))
        assert published(house) == "active"
        transaction.set_rollback(True)
    assert published(house) == "suspended"
    pay(house, at=day(15))
    assert (published(house), state_of(house)) == ("active", State.CURRENT)
    assert names(house)[-1] == ("reinstate", "reinstated")
    assert told()[-1] == "The service of Acme is back"
    assert Event.objects.filter(kind="invoice.paid").count() in (0, 1)
    pass_days(60, 16)
    assert state_of(house) == State.CURRENT
    assert sound()


def test_a_part_does_not_reinstate(house, owing):
    pass_days(14)
    pay(house, 400, at=day(15))
    assert published(house) == "suspended"
    look(now=day(15))
    assert case_of(house).due_cents == 600
    pay(house, 550, at=day(16))  # less than a dollar is left
    assert published(house) == "active"


def test_a_disputed_invoice_is_left_alone_and_goes_on_with_notice(house, owing):
    pass_days(7)
    open_dispute(invoice_id=owing.id, key="d", actor=OPERATOR, reason="wrong", now=day(8))
    pass_days(40, 8)
    assert state_of(house) == State.CURRENT
    close_dispute(invoice_id=owing.id, key="d", actor=OPERATOR, now=day(40))
    look(now=day(40))
    assert state_of(house) == State.RETRYING
    pass_days(49, 41)
    assert state_of(house) == State.GRACE  # it begins anew: ten days from its first step
    pass_days(54, 50)
    assert state_of(house) == State.SUSPENDED


def test_a_dispute_ends_a_suspension(house, owing):
    pass_days(14)
    open_dispute(invoice_id=owing.id, key="d", actor=OPERATOR, reason="wrong", now=day(15))
    deliver_due(now=day(15))
    assert (published(house), state_of(house)) == ("active", State.CURRENT)


def test_what_was_found_late_has_the_same_notice(house, owing):
    look(now=day(100))
    assert state_of(house) == State.RETRYING
    pass_days(109, 101)
    assert state_of(house) == State.GRACE
    pass_days(114, 110)
    assert state_of(house) == State.SUSPENDED


def test_who_owes_less_than_the_least_is_left_alone(house, owing):
    Settings.objects.update(min_cents=1001)
    pass_days(20)
    assert names(house) == []


def test_an_operators_own_suspension_is_not_ended_by_a_payment(house, owing):
    from control.tenants.services import suspend_organization

    pass_days(10)
    suspend_organization(actor=OPERATOR, organization=house.organization, reason="abuse")
    pass_days(14, 11)
    pay(house, at=day(15))
    assert published(house) == "suspended"


def test_one_that_fails_holds_nobody_up(house, outsider, monkeypatch):
    owe(house, outsider)
    from billing.collection.services import looking

    real = looking.proceed

    def fail(found):
        if found.case.pk == house.id:
            raise RuntimeError("broken")
        real(found)

    monkeypatch.setattr(looking, "proceed", fail)
    assert look(now=day(0)) == 1
    assert names(outsider) == [("retry", "reminded")]
    monkeypatch.setattr(looking, "proceed", real)
    look(now=day(0))
    assert names(house) == []  # it is left for ten minutes
    look(now=day(0) + timedelta(minutes=10))
    assert names(house) == [("retry", "reminded")]


def test_a_look_before_its_time_does_nothing(house, owing):
    look(now=day(0))
    before = Step.objects.count()
    look_at(house.id, now=day(0))
    assert Step.objects.count() == before


def test_who_was_missed_is_found(house, owing):
    Case.objects.all().delete()
    assert look(now=day(3)) == 0
    assert wake_missed(now=day(3)) == 1
    look(now=day(3))
    assert names(house) == [("retry", "reminded")]
    assert wake_missed(now=day(3)) == 0


def test_a_second_invoice_begins_at_the_first_step(house, owing):
    from datetime import UTC, datetime

    from control.prices.models import Price
    from tests.support.invoicing import NOVEMBER, close, customer_of, finish_month, use_cents

    use_cents(customer_of(house), Price.objects.get(), 500, day(1))
    after = datetime(2026, 12, 1, 2, tzinfo=UTC)
    finish_month(after)
    close(after, NOVEMBER)
    pass_days(7)
    pay(house, at=day(8))
    assert state_of(house) == State.CURRENT
    pass_days(29, 8)
    assert state_of(house) == State.CURRENT
    pass_days(30, 30)  # 15 December
    assert (state_of(house), names(house)[-1]) == (State.RETRYING, ("retry", "reminded"))


def test_an_outsider_is_never_touched(house, outsider, owing):
    pass_days(20)
    assert not Case.objects.filter(pk=outsider.id).exists()
    assert published(outsider) == "active"
    assert make_house("Third").organization.is_active
