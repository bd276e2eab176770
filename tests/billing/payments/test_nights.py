"""Each night's look ends however much there is, and whoever is killed on the way."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from billing.payments import nights
from billing.payments.errors import StripeAway
from billing.payments.models import Dispute, Gap, Reconciliation
from billing.payments.nights import WINDOW, reconcile, reconcile_due
from billing.payments.stripe_api import StripeApi
from control.outbox.services import deliver_due
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import ask_top_up, balance_cents, deliver, save_card, settle
from tests.simulation.stripe_double import StripeDouble

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

PATIENT = 3600


@pytest.fixture(autouse=True)
def long_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A night asks for twelve steps, not for 72."""
    monkeypatch.setattr(nights, "STEP", timedelta(hours=6))


def tomorrow(hour: int = 4) -> datetime:
    day = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + timedelta(days=1, hours=hour)


def look(now: datetime) -> Reconciliation:
    found = reconcile_due(now=now, seconds=PATIENT)
    assert found is not None
    return found


def test_a_night_begins_at_its_hour_once(org: SeededOrganization, stripe: StripeDouble) -> None:
    assert reconcile_due(now=tomorrow(3), seconds=PATIENT) is None
    found = look(tomorrow(4))
    midnight = tomorrow(0)
    assert (found.starts_at, found.ends_at) == (midnight - WINDOW, midnight)
    assert found.ended_at is not None
    assert reconcile_due(now=tomorrow(5), seconds=PATIENT) is None
    assert look(tomorrow(28)).starts_at == midnight - WINDOW + timedelta(days=1)


def test_a_night_that_is_cut_short_goes_on_where_it_was(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_card(org, stripe)
    ask_top_up(org)
    deliver_due(now=timezone.now())  # and no webhook ever comes
    asked, steps_max, movements = [], 5, StripeApi.movements

    def away_after_some(api: StripeApi, since: int, until: int) -> object:
        if len(asked) == steps_max:
            raise StripeAway("Stripe is away")
        asked.append((since, until))
        return movements(api, since, until)

    monkeypatch.setattr(StripeApi, "movements", away_after_some)
    with pytest.raises(StripeAway):
        look(tomorrow())
    cut = Reconciliation.objects.get()
    assert (cut.ended_at, cut.looked_until) == (None, cut.starts_at + 5 * nights.STEP)
    steps_max = 1_000
    found = look(tomorrow(5))
    assert found.pk == cut.pk
    assert found.ended_at is not None
    assert (found.movement_count, found.gap_count) == (1, 0)
    assert balance_cents(org) == 5_000
    assert len(asked) == len(set(asked)) == WINDOW / nights.STEP
    assert [after for after, _ in asked[1:]] == [until for _, until in asked[:-1]]


def test_one_run_takes_no_longer_than_it_may(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr(nights, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    found = reconcile_due(now=tomorrow(), seconds=3)
    assert found is not None
    assert found.ended_at is None
    runs = 1
    while found.ended_at is None:
        found = reconcile_due(now=tomorrow(), seconds=3)
        assert found is not None
        runs += 1
    assert 5 < runs < 15
    assert Reconciliation.objects.count() == 1


def test_of_two_runs_at_once_one_gives_way(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_card(org, stripe)
    ask_top_up(org)
    settle(stripe)
    movements, inside = StripeApi.movements, []

    def and_another(api: StripeApi, since: int, until: int) -> object:
        if not inside:
            inside.append(True)
            look(tomorrow())
        return movements(api, since, until)

    monkeypatch.setattr(StripeApi, "movements", and_another)
    look(tomorrow())
    found = Reconciliation.objects.get()
    assert (found.movement_count, found.gap_count) == (1, 0)


def test_a_night_after_nights_without_one_leaves_no_hole(
    org: SeededOrganization, stripe: StripeDouble
) -> None:
    first = look(tomorrow())
    later = look(tomorrow() + timedelta(days=4))
    assert later.starts_at == first.ends_at


@pytest.mark.parametrize("is_heard_of", [True, False])
def test_money_that_came_back_at_another_hour_is_no_gap(
    org: SeededOrganization, stripe: StripeDouble, is_heard_of: bool
) -> None:
    """Two steps of a look see half of it each."""
    save_card(org, stripe)
    payment = ask_top_up(org)
    settle(stripe)
    refund = stripe.pay_back(stripe.succeeded()[0]["id"], 1_000)
    if is_heard_of:
        deliver(stripe)
    stripe.bounce_refund(refund["id"])
    if is_heard_of:
        deliver(stripe)
    for each in stripe.all("balance_transaction"):
        if each["type"] == "refund_failure":
            each["created"] += 3 * 3600
    now = timezone.now() + timedelta(hours=6)
    found = reconcile(starts_at=now - timedelta(days=1), ends_at=now, now=now)
    assert (found.gap_count, [*Gap.objects.all()]) == (0, [])
    payment.refresh_from_db()
    assert balance_cents(org) == 5_000


def test_disputes_are_looked_at_one_after_another(
    org: SeededOrganization, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nights, "DISPUTES", 1)
    save_card(org, stripe)
    for _ in range(3):
        ask_top_up(org)
    settle(stripe)
    for intent in stripe.succeeded():
        stripe.open_dispute(intent["id"])
    deliver(stripe)
    for dispute in stripe.all("dispute"):
        stripe.close_dispute(dispute["id"], is_won=False)
    now = timezone.now() + timedelta(days=30)
    found = reconcile(starts_at=now - WINDOW, ends_at=now, now=now)
    assert found.looked_dispute == max(each["id"] for each in stripe.all("dispute"))
    assert not Dispute.objects.filter(closed_at__isnull=True).exists()
