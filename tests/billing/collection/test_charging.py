"""Retries charge the saved card where there is one; a payment on its way holds everything up."""

from datetime import timedelta
from unittest.mock import patch

import pytest

from billing.collection.models import State
from billing.collection.services import operator
from billing.collection.services.looking import look
from billing.invoicing.models import BillingProfile
from billing.invoicing.selectors import standing
from billing.payments.models import StripePayment
from control.errors import Conflict
from tests.fixtures import paying
from tests.fixtures.collecting import (
    case_of,
    day,
    decide,
    mails,
    names,
    pass_days,
    published,
    state_of,
)
from tests.fixtures.invoicing import sound
from tests.fixtures.paying import save_card

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
DECLINED = "pm_card_chargeCustomerFail"


@pytest.fixture(autouse=True)
def recipients(org):
    BillingProfile.objects.update_or_create(
        organization_id=org.id, defaults={"recipients": ["money@acme.example"]}
    )


def settle(stripe, now):
    """Let all that follows happen at one moment, Stripe's webhooks too."""
    with patch("django.utils.timezone.now", return_value=now):
        paying.settle(stripe, now=now)


def test_the_card_is_charged_on_the_day_it_is_due(org, owing, stripe):
    save_card(org, stripe)
    look(now=day(0))
    assert names(org) == [("retry", "charged")]
    assert case_of(org).waits_for == "payment"
    settle(stripe, day(0))
    assert standing(owing).is_settled
    assert state_of(org) == State.CURRENT
    pass_days(40, 1)
    assert names(org) == [("retry", "charged")]
    assert sound()


def test_a_declined_card_is_told_with_what_follows_and_tried_again(org, owing, stripe):
    save_card(org, stripe, DECLINED)
    for number in range(12):
        look(now=day(number))
        settle(stripe, day(number))
    assert names(org)[:2] == [("retry", "charged")] * 2
    failed = [each for each in mails() if each.subject.startswith("Payment of $10.00")]
    assert failed
    assert "again on" in str(failed[0].body)
    assert not standing(owing).is_settled
    assert StripePayment.objects.filter(invoice_id=owing.id).count() == len(failed)


def test_while_a_payment_is_on_its_way_no_step_is_taken(org, owing, stripe):
    pass_days(13)
    StripePayment.objects.create(
        organization_id=org.id, mode="test", purpose="top_up", amount_cents=1000,
        status="processing", idempotency_key="slow", requested_by="ada", created_at=day(13),
    )  # fmt: skip
    pass_days(30, 14)
    assert (state_of(org), published(org)) == (State.LIMITED, "active")
    for verb in (operator.suspend_now, operator.retry_now, operator.write_off):
        with pytest.raises(Conflict, match="on its way"):
            decide(verb, org, at=day(30))


def test_a_page_of_stripes_that_was_left_holds_up_for_an_hour_only(org, owing, stripe):
    pass_days(13)
    StripePayment.objects.create(
        organization_id=org.id, mode="test", purpose="top_up", amount_cents=1000,
        status="open", idempotency_key="left", requested_by="ada", created_at=day(14),
    )  # fmt: skip
    look(now=day(14))
    assert published(org) == "active"
    look(now=day(15))
    assert published(org) == "suspended"


def test_a_page_opened_every_hour_holds_nothing_up(org, owing, stripe):
    pass_days(13)
    for hour in range(4):
        at = day(14) + timedelta(hours=hour)
        StripePayment.objects.create(
            organization_id=org.id, mode="test", purpose="top_up", amount_cents=500,
            status="open", idempotency_key=str(hour), requested_by="ada", created_at=at,
        )  # fmt: skip
        look(now=at + timedelta(minutes=30))
    assert published(org) == "suspended"


def on_its_way(org, cents, at):
    return StripePayment.objects.create(
        organization_id=org.id, mode="test", purpose="top_up", amount_cents=cents,
        status="processing", idempotency_key=f"{at}", requested_by="ada", created_at=at,
    )  # fmt: skip


def test_a_payment_of_a_part_stops_nothing_for_the_rest(org, owing, stripe):
    """Of 10.00 a debit of 9.99 is on its way, for as long as a bank takes."""
    save_card(org, stripe)
    on_its_way(org, 999, day(0))
    pass_days(14)
    assert names(org)[0] == ("retry", "reminded")  # the card is not charged for all of it
    assert published(org) == "suspended"
    with pytest.raises(Conflict, match="on its way"):
        decide(operator.retry_now, org, at=day(14))


def test_an_invoice_just_paid_in_two_parts_suspends_nobody(org, owing, stripe):
    pass_days(13)
    part = on_its_way(org, 999, day(13))
    with pytest.raises(Conflict, match="already limited or suspended"):
        decide(operator.limit_now, org, at=day(13))
    on_its_way(org, 1, day(14))
    look(now=day(14))
    assert (published(org), case_of(org).waits_for) == ("active", "payment")
    part.delete()
    pass_days(15, 15)
    assert published(org) == "suspended"


def test_a_payment_with_keys_that_are_gone_holds_nothing_up(org, owing, stripe):
    pass_days(13)
    StripePayment.objects.create(
        organization_id=org.id, mode="live", purpose="top_up", amount_cents=1000,
        status="processing", idempotency_key="old", requested_by="ada", created_at=day(13),
    )  # fmt: skip
    look(now=day(14))
    assert published(org) == "suspended"
