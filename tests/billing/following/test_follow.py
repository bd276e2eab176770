"""Followers miss nothing and repeat nothing, whatever commits when and whatever dies."""

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import psycopg
import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from billing.credit.models import UnpostedUsage
from billing.following import beat
from billing.following import follow as following
from billing.following.cursor import ForeignLineageError
from billing.following.follow import FOLLOWERS, follow, follow_all, step
from billing.following.models import Cursor, HourRollup, MinuteRollup
from billing.following.selectors import lag_seconds
from billing.following.tasks import watch
from billing.metering.ingest import ingest
from control.alarms.models import AlarmCount
from control.api_keys.models import ApiKey
from control.celery import app
from tests.fixtures.database import superuser_url
from tests.fixtures.following import catch_up, wait_until_quiet
from tests.fixtures.usage import NOW, charge_of, give_credit, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

COPY_EVENT = """
INSERT INTO metering_usage_event SELECT (jsonb_populate_record(event, jsonb_build_object(
    'event_id', %s::text, 'ingested_xid', pg_current_xact_id()::text))).*
FROM metering_usage_event AS event ORDER BY event_id LIMIT 1
"""


@pytest.fixture
def writer() -> Iterator[psycopg.Connection]:
    """Another writer of events, whose transaction stays open until the test ends it."""
    with psycopg.connect(superuser_url()) as other:
        yield other
        other.rollback()


def take_in(*events):
    ingest(make_batch(events), now=NOW)


def rolled_up():
    return HourRollup.objects.aggregate(count=Sum("request_count"))["count"] or 0


def unposted():
    return UnpostedUsage.objects.aggregate(nanos=Sum("nanos"))["nanos"] or 0


def test_usage_is_summed_by_minute_and_hour_once(customer, price):
    event = make_event(customer, price)
    take_in(event, make_event(customer, price, outcome="engine_failed", ttft_seconds=None))
    for _ in range(2):
        catch_up(NOW)
    for table in (MinuteRollup, HourRollup):
        row = table.objects.get()
        assert (row.request_count, row.completed_count, row.engine_failed_count) == (2, 1, 1)
        assert (row.input_tokens, row.output_tokens) == (2000, 40)
        assert row.input_nanos + row.cached_input_nanos + row.output_nanos == charge_of(event)
        assert row.waived_nanos == charge_of(event)
        assert sum(row.ttft_counts) == row.ttft_counts[6] == 1


def test_a_later_page_adds_to_what_is_there(customer, price):
    for _ in range(3):
        take_in(make_event(customer, price))
        catch_up(NOW)
    assert MinuteRollup.objects.get().request_count == HourRollup.objects.get().request_count == 3
    assert HourRollup.objects.get().ttft_counts[6] == 3


def test_an_older_transaction_that_commits_later_is_waited_for_and_followed(
    customer, price, writer
):
    take_in(make_event(customer, price))
    catch_up(NOW)
    older = make_event(customer, price)
    writer.execute(COPY_EVENT, [older.event_id])
    take_in(make_event(customer, price))
    follow_all(now=NOW)
    assert rolled_up() == 1
    writer.commit()
    catch_up(NOW)
    assert rolled_up() == 3
    assert unposted() == 3 * charge_of(older)


def test_a_transaction_that_is_rolled_back_holds_up_nobody_for_good(customer, price, writer):
    take_in(make_event(customer, price))
    writer.execute(COPY_EVENT, [make_event(customer, price).event_id])
    writer.rollback()
    catch_up(NOW)
    assert rolled_up() == 1


def test_pages_end_with_whole_transactions(customer, price, superuser_connection):
    for _ in range(4):
        take_in(make_event(customer, price), make_event(customer, price))
    # As numbers, 98 comes before 100; as texts it does not.
    superuser_connection.execute(
        "UPDATE metering_usage_event SET ingested_xid = renamed.xid FROM ("
        " SELECT ingested_xid AS old, ((dense_rank() OVER (ORDER BY ingested_xid)) * 2 + 96)"
        " ::text::xid8 AS xid FROM metering_usage_event) AS renamed WHERE ingested_xid = old"
    )
    wait_until_quiet()
    pages = [step("rollups", now=NOW, events=3) for _ in range(3)]
    assert [page.is_last for page in pages] == [False, False, True]
    assert [page.until_xid for page in pages[:-1]] == [page.from_xid for page in pages[1:]]
    assert rolled_up() == 8


def test_a_bounded_call_says_that_it_is_not_at_the_end(customer, price):
    for _ in range(3):
        take_in(make_event(customer, price))
    wait_until_quiet()
    assert not follow("rollups", now=NOW, pages_max=2, events=1)
    assert rolled_up() == 2
    assert follow("rollups", now=NOW, events=1)


@pytest.mark.parametrize("name", FOLLOWERS)
def test_a_crash_before_the_cursor_moves_undoes_the_effect(name, customer, price, monkeypatch):
    take_in(make_event(customer, price))
    monkeypatch.setattr(following, "move", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        follow(name, now=NOW)
    assert (rolled_up(), unposted()) == (0, 0)
    monkeypatch.undo()
    catch_up(NOW)
    assert rolled_up() == 1


def test_one_follower_at_a_time(customer, price, writer):
    take_in(make_event(customer, price))
    wait_until_quiet()
    writer.execute("SELECT FROM following_cursor WHERE name = 'rollups' FOR UPDATE")
    assert step("rollups", now=NOW) is None
    assert not follow_all(now=NOW)
    assert (rolled_up(), unposted() > 0) == (0, True)


def test_a_correction_counts_the_lost_event_out_and_the_real_one_in(customer, price):
    lost = make_event(customer, price, outcome="gateway_lost", output_tokens=0, ttft_seconds=None)
    take_in(lost)
    catch_up(NOW)
    real = msgspec.structs.replace(make_event(customer, price), event_id=lost.event_id)
    take_in(real)
    catch_up(NOW)
    row = HourRollup.objects.get()
    assert (row.request_count, row.gateway_lost_count, row.completed_count) == (1, 0, 1)
    assert (row.output_tokens, row.waived_nanos) == (20, 0)
    assert unposted() == charge_of(real)


def test_charges_are_told_apart_by_the_soonest_expiry_after_them(customer, outsider, price):
    soon, later = NOW - timedelta(seconds=30), NOW + timedelta(days=1)
    for expires_at in (soon, later, None):
        give_credit(customer, 10**9, expires_at=expires_at, now=NOW - timedelta(hours=1))
    for seconds in (60, 0):
        take_in(make_event(customer, price, received_at=NOW - timedelta(seconds=seconds)))
    take_in(make_event(outsider, price))
    catch_up(NOW)
    rows = UnpostedUsage.objects.filter(organization_id=customer.id).order_by("received_before")
    assert [row.received_before for row in rows] == [soon, later]
    assert UnpostedUsage.objects.get(organization_id=outsider.id).received_before is None


def test_waived_usage_is_not_posted(customer, price):
    take_in(make_event(customer, price, outcome="timed_out"))
    catch_up(NOW)
    assert not UnpostedUsage.objects.exists()


def test_keys_know_when_they_were_last_used(customer, price):
    take_in(make_event(customer, price), make_event(customer, price, received_at=NOW))
    catch_up(NOW)
    assert ApiKey.objects.get(id=customer.key.id).last_used_at == NOW


def test_usage_from_before_the_followers_counts_as_followed(customer, price, superuser_connection):
    take_in(make_event(customer, price))
    superuser_connection.execute("UPDATE metering_usage_event SET ingested_xid = NULL")
    catch_up(NOW)
    assert rolled_up() == 0


def test_a_cursor_of_another_database_stops(customer, price):
    catch_up(NOW)
    Cursor.objects.update(lineage="elsewhere")
    take_in(make_event(customer, price))
    with pytest.raises(ForeignLineageError):
        follow("rollups", now=NOW)
    assert rolled_up() == 0
    assert not connection.in_atomic_block


def test_a_follower_that_lags_is_told_of(customer):
    for _ in range(2):  # what was open the first time is followed the second
        catch_up(NOW)
    assert lag_seconds(NOW + timedelta(seconds=61)) == dict.fromkeys(FOLLOWERS, 61.0)
    Cursor.objects.filter(name="keys").update(followed_at=timezone.now() - timedelta(hours=1))
    Cursor.objects.exclude(name="keys").update(followed_at=timezone.now())
    watch()
    assert [row.kind for row in AlarmCount.objects.all()] == ["late_follower_keys"]


def test_an_open_writer_is_a_lag_of_all_followers(writer):
    before = timezone.now() - timedelta(seconds=62)
    for _ in range(2):
        catch_up(before)
    writer.execute("SELECT pg_current_xact_id()")
    for seconds in (1, 30, 60):
        follow_all(now=before + timedelta(seconds=seconds))
    later = before + timedelta(seconds=62)
    assert all(lag >= 61 for lag in lag_seconds(later).values())
    watch()
    assert {row.kind for row in AlarmCount.objects.all()} == {
        f"late_follower_{name}" for name in FOLLOWERS
    }
    writer.commit()
    for _ in range(2):
        catch_up(later)
    assert lag_seconds(later) == dict.fromkeys(FOLLOWERS, 0.0)


def test_recurring_tasks_follow(customer, price):
    today = timezone.now()  # tasks go by the clock on the wall, and would close an older day
    ingest(make_batch([make_event(customer, price, received_at=today)]), now=today)
    for _ in range(3):  # PostgreSQL's own analyzing may hold up any one round
        wait_until_quiet()
        for entry in beat.SCHEDULE.values():
            app.tasks[entry["task"]](*entry.get("args", ()))
    assert (rolled_up(), unposted()) == (1, 132_000)
