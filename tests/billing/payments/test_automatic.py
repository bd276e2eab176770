"""Topping up without being asked: at the threshold, within the cap, until two declines."""

from datetime import timedelta

import pytest
from django.utils import timezone

from billing.payments.models import AutoTopUp, StripePayment
from billing.payments.services.automatic import run_auto_top_ups, set_auto_top_up
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import balance_cents, save_card, settle
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def turn_on(org: SeededOrganization, **changes: object) -> AutoTopUp:
    values: dict[str, object] = {
        "is_on": True, "threshold_cents": 1_000, "amount_cents": 5_000,
        "monthly_cap_cents": 12_000, "actor": org.actor, "now": timezone.now(),
    }  # fmt: skip
    return set_auto_top_up(organization=org.organization, **(values | changes))


def test_a_low_balance_is_topped_up_once(org: SeededOrganization, stripe: StripeDouble) -> None:
    save_card(org, stripe)
    turn_on(org)
    assert run_auto_top_ups(now=timezone.now()) == 1
    assert run_auto_top_ups(now=timezone.now()) == 0
    settle(stripe)
    assert (balance_cents(org), len(stripe.succeeded())) == (5_000, 1)
    assert run_auto_top_ups(now=timezone.now()) == 0


def test_two_runs_at_once_ask_once(org: SeededOrganization, stripe: StripeDouble) -> None:
    save_card(org, stripe)
    turn_on(org)
    for _ in range(3):
        run_auto_top_ups(now=timezone.now())
    assert StripePayment.objects.filter(purpose="automatic").count() == 1


def test_the_months_cap_holds(org: SeededOrganization, stripe: StripeDouble) -> None:
    save_card(org, stripe)
    turn_on(org, threshold_cents=100_000)
    month = timezone.now().replace(day=2)
    for _ in range(4):
        run_auto_top_ups(now=month)
        settle(stripe)
    assert balance_cents(org) == 10_000
    assert run_auto_top_ups(now=month + timedelta(days=31)) == 1


def test_two_declines_stop_it_and_saving_starts_it_again(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe, "pm_card_chargeCustomerFail")
    turn_on(org)
    now = timezone.now()
    for hours in range(0, 8, 2):
        run_auto_top_ups(now=now + timedelta(hours=hours))
        settle(stripe, now=now + timedelta(hours=hours))
    settings = AutoTopUp.objects.get()
    assert (settings.decline_count, settings.is_running) == (2, False)
    assert StripePayment.objects.filter(status="failed").count() == 2
    assert turn_on(org).is_running
    assert run_auto_top_ups(now=timezone.now()) == 1


def test_a_decline_leaves_an_hour_to_put_it_right(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe, "pm_card_chargeCustomerFail")
    turn_on(org)
    now = timezone.now()
    assert run_auto_top_ups(now=now) == 1
    settle(stripe)
    assert run_auto_top_ups(now=now + timedelta(minutes=50)) == 0
    assert run_auto_top_ups(now=now + timedelta(minutes=70)) == 1


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"threshold_cents": -1}, "threshold_cents"),
        ({"amount_cents": 0}, "amount_cents"),
        ({"amount_cents": 10**12}, "amount_cents"),
        ({"monthly_cap_cents": 4_999}, "monthly_cap_cents"),
    ],
)
def test_bad_settings_are_named(
    org: SeededOrganization, stripe: StripeDouble, changes: dict[str, int], param: str
) -> None:
    save_card(org, stripe)
    with pytest.raises(InvalidValue) as refused:
        turn_on(org, **changes)
    assert refused.value.param == param


def test_it_needs_a_method_and_the_role(
    org: SeededOrganization, outsider: SeededOrganization, stripe: StripeDouble
) -> None:
    with pytest.raises(Conflict, match="payment method"):
        turn_on(org)
    save_card(org, stripe)
    for actor, error in (
        (org.actor_of(org.join("developer")), NotPermitted),
        (outsider.actor, ObjectNotFound),
    ):
        with pytest.raises(error):
            turn_on(org, actor=actor)
