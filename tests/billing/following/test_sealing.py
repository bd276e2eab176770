"""A day is closed, posted and sealed once; what comes later belongs to an open day."""

from datetime import timedelta
from threading import Thread

import msgspec
import pytest
from django.db import connection

from billing.credit.models import UnpostedUsage
from billing.following import posting
from billing.following.closing import close_days
from billing.following.follow import follow
from billing.following.models import HourRollup, Seal
from billing.following.posting import post_due
from billing.following.sealing import seal_day, seal_days
from billing.ledger.models import Cause, Transaction
from billing.metering.days import SHARE
from billing.metering.ingest import ingest
from billing.metering.models import Day, UsageEvent
from control.alarms.models import AlarmCount
from tests.fixtures.following import catch_up, finish, wait_until_quiet
from tests.fixtures.usage import NOW, charge_of, give_credit, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

TODAY = NOW.date()
TOMORROW = NOW + timedelta(days=1)
DAY_AFTER = NOW + timedelta(days=2)


def take_in(*events, now=NOW):
    ingest(make_batch(events), now=now)


def test_a_day_closes_an_hour_after_its_end(customer, price):
    take_in(make_event(customer, price))
    midnight = NOW.replace(hour=0, minute=0) + timedelta(days=1)
    close_days(now=midnight + timedelta(minutes=59))
    assert not Day.objects.filter(day=TODAY).exists()
    assert close_days(now=midnight + timedelta(minutes=60)) == TODAY
    assert close_days(now=midnight + timedelta(minutes=61)) == TODAY


def test_every_day_since_the_first_event_is_closed_in_turn(customer, price):
    take_in(make_event(customer, price, received_at=NOW - timedelta(days=3)))
    close_days(now=TOMORROW)
    days = list(Day.objects.order_by("day").values_list("day", flat=True))
    assert days == [TODAY - timedelta(days=back) for back in (3, 2, 1, 0)]


def test_a_close_waits_for_batches_at_work(customer, price, superuser_connection):
    superuser_connection.execute("BEGIN")
    superuser_connection.execute(SHARE)
    closing = Thread(target=_close_elsewhere)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive()
    superuser_connection.execute("COMMIT")
    closing.join(60)
    assert not closing.is_alive(), "waited in vain for the close"
    assert Day.objects.filter(day=TODAY).exists()


def _close_elsewhere():
    try:
        close_days(now=TOMORROW)
    finally:
        connection.close()


def test_a_sealed_day_says_what_each_organization_used(customer, outsider, price):
    give_credit(customer, 10**9)
    events = [make_event(customer, price) for _ in range(3)]
    take_in(*events, make_event(outsider, price, outcome="timed_out"))
    assert finish(TOMORROW) == [TODAY]
    mine, other = (Seal.objects.get(organization_id=one.id) for one in (customer, outsider))
    assert (mine.event_count, mine.output_tokens, mine.waived_nanos) == (3, 60, 0)
    charged = mine.input_nanos + mine.cached_input_nanos + mine.output_nanos
    assert charged == sum(map(charge_of, events))
    assert (other.event_count, other.input_nanos) == (1, 0)
    assert (
        len({bytes(one) for seal in (mine, other) for one in (seal.digest, seal.rows_digest)}) == 4
    )
    assert Day.objects.get(day=TODAY).event_count == 4


def test_sealing_posts_the_day_once_for_each_organization(customer, outsider, price):
    for one in (customer, outsider):
        for _ in range(3):
            take_in(make_event(one, price))
            catch_up(NOW)
    finish(TOMORROW)
    usage = Transaction.objects.filter(kind=Cause.USAGE)
    assert {(one.organization_id, one.accounted_on) for one in usage} == {
        (customer.id, TODAY),
        (outsider.id, TODAY),
    }
    assert usage.count() == 2
    assert not UnpostedUsage.objects.exists()


def test_only_closed_and_followed_days_are_posted(customer, price, monkeypatch):
    monkeypatch.setattr(posting, "CHUNK", 1)
    take_in(make_event(customer, price))
    catch_up(NOW)
    assert post_due(now=NOW) == 0
    close_days(now=TOMORROW)
    assert post_due(now=TOMORROW) == 0
    wait_until_quiet()
    follow("postings", now=TOMORROW)
    assert post_due(now=TOMORROW) == 1


def test_a_day_is_sealed_only_when_every_follower_has_passed_it(customer, price):
    take_in(make_event(customer, price))
    close_days(now=TOMORROW)
    wait_until_quiet()
    for name in ("rollups", "postings"):
        follow(name, now=TOMORROW)
        assert seal_days(now=TOMORROW) == []
    follow("keys", now=TOMORROW)
    assert seal_days(now=TOMORROW) == [TODAY]


def test_late_usage_belongs_to_the_first_open_day(customer, price):
    take_in(make_event(customer, price))
    finish(TOMORROW)
    before = list(Seal.objects.values())
    take_in(make_event(customer, price), now=TOMORROW)
    assert set(UsageEvent.objects.values_list("accounted_on", flat=True)) == {
        TODAY,
        TOMORROW.date(),
    }
    assert finish(DAY_AFTER) == [TOMORROW.date()]
    assert list(Seal.objects.filter(day=TODAY).values()) == before
    assert Seal.objects.get(day=TOMORROW.date()).event_count == 1
    late = HourRollup.objects.get(accounted_on=TOMORROW.date())
    assert late.bucket_at.date() == TODAY


def test_a_correction_is_sealed_on_its_own_day(customer, price):
    lost = make_event(customer, price, outcome="gateway_lost", output_tokens=0)
    take_in(lost)
    finish(TOMORROW)
    take_in(
        msgspec.structs.replace(make_event(customer, price), event_id=lost.event_id), now=TOMORROW
    )
    finish(DAY_AFTER)
    seal = Seal.objects.get(day=TOMORROW.date())
    assert (seal.event_count, seal.output_tokens, seal.output_nanos) == (0, 20, 12_000)


def test_a_sealed_day_is_not_sealed_again(customer, price):
    take_in(make_event(customer, price))
    finish(TOMORROW)
    before = list(Seal.objects.values())
    assert seal_day(TODAY, now=DAY_AFTER)
    assert list(Seal.objects.values()) == before


def test_a_day_whose_rollups_disagree_is_not_sealed(customer, price):
    take_in(make_event(customer, price))
    close_days(now=TOMORROW)
    catch_up(TOMORROW)
    HourRollup.objects.update(output_tokens=0)
    assert seal_days(now=TOMORROW) == []
    assert not Seal.objects.exists()
    assert AlarmCount.objects.get(kind="day_disagrees").count == 1


def test_days_without_usage_are_sealed_too(customer):
    assert finish(TOMORROW) == [TODAY]
    assert Day.objects.get().event_count == 0
