"""Followers of a promoted database continue by themselves only where gateways prove that it lacks
nothing."""

from datetime import timedelta

import msgspec
import pytest
from django.utils import timezone

from billing.following.cursor import ForeignLineageError
from billing.following.follow import FOLLOWERS, follow
from billing.following.models import Cursor, HourRollup
from billing.following.tasks import watch
from billing.metering import resent
from billing.metering.ingest import ingest
from billing.metering.models import ResentUsage
from control.alarms.models import AlarmCount
from control.dataplane.models import GatewayHeartbeat
from control.feed.database_identity import database_id, earlier_database_ids
from tests.fixtures.following import catch_up
from tests.fixtures.usage import GATEWAY, NOW, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

BEFORE = "before"
"""The lineage of the primary."""


@pytest.fixture
def promoted(customer, price, monkeypatch):
    """A copy, one minute old, of a primary to which one gateway had shipped an event."""
    monkeypatch.setattr(resent, "earlier_database_ids", lambda: {BEFORE})
    ship(make_event(customer, price))
    catch_up(NOW)
    Cursor.objects.update(lineage=BEFORE, followed_at=timezone.now() - timedelta(minutes=1))
    ResentUsage.objects.update(lineage=BEFORE, shipped_at=timezone.now() - timedelta(minutes=1))


def ship(*events, gateway_id=GATEWAY, **marks):
    batch = make_batch(events, gateway_id)
    ingest(msgspec.structs.replace(batch, lineage=database_id(), **marks), now=NOW)


def end(gateway_id=GATEWAY):
    ship(gateway_id=gateway_id, resent=True, is_last=True)


def goes_on():
    try:
        follow("rollups", now=NOW)
    except ForeignLineageError:
        return False
    return True


def test_a_gateway_that_lacked_nothing_lets_followers_continue(promoted, customer, price):
    known = make_event(customer, price)
    ship(known)
    assert not goes_on()
    ship(known, resent=True)
    assert not goes_on()
    end()
    for name in FOLLOWERS:
        follow(name, now=NOW)
    assert set(Cursor.objects.values_list("lineage", flat=True)) == {database_id()}
    assert sum(HourRollup.objects.values_list("request_count", flat=True)) == 2


def test_a_missing_event_stops_followers_and_is_told(promoted, customer, price):
    ship(make_event(customer, price), resent=True)
    end()
    assert not goes_on()
    row = ResentUsage.objects.get()
    assert (row.event_count, row.missing_count, row.lineage) == (1, 1, database_id())
    Cursor.objects.update(followed_at=timezone.now() - timedelta(minutes=2))
    watch()
    assert AlarmCount.objects.filter(kind="database_replaced").get().count == 1


def test_a_batch_whose_answer_was_lost_is_still_missing(promoted, customer, price):
    event = make_event(customer, price)
    for _ in range(2):
        ship(event, resent=True)
    end()
    assert ResentUsage.objects.get().missing_count == 1
    assert not goes_on()


def test_every_gateway_is_asked(promoted):
    end()
    GatewayHeartbeat.objects.create(gateway_id="gw_alive", seen_at=timezone.now())
    assert not goes_on()
    end("gw_alive")
    add_row("gw_dead", shipped=timedelta(hours=23))
    assert not goes_on()
    end("gw_dead")
    add_row("gw_long_gone", shipped=timedelta(hours=25))
    assert goes_on()


def test_an_end_for_another_database_proves_nothing(promoted):
    batch = make_batch([])
    ingest(msgspec.structs.replace(batch, lineage=BEFORE, resent=True, is_last=True), now=NOW)
    assert not goes_on()


def test_a_copy_older_than_what_gateways_keep_proves_nothing(promoted):
    end()
    Cursor.objects.update(followed_at=timezone.now() - timedelta(hours=25))
    assert not goes_on()


def test_a_dump_in_another_cluster_proves_nothing(promoted, monkeypatch):
    end()
    monkeypatch.setattr(resent, "earlier_database_ids", set)
    assert not goes_on()


def test_counts_begin_anew_with_the_next_database(promoted, customer, price):
    ship(make_event(customer, price), resent=True)
    ResentUsage.objects.update(lineage=BEFORE, finished_at=timezone.now())
    ship()
    row = ResentUsage.objects.get()
    assert (row.event_count, row.missing_count, row.finished_at) == (0, 0, None)


def test_an_operators_retry_is_no_shipment(customer, price):
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert not ResentUsage.objects.exists()


@pytest.mark.usefixtures("promoted")
def test_a_new_cluster_has_no_earlier_lineages():
    assert earlier_database_ids() == set()


def add_row(gateway_id, *, shipped):
    ResentUsage.objects.create(
        gateway_id=gateway_id, lineage=BEFORE, shipped_at=timezone.now() - shipped
    )
