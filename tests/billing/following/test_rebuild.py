"""After a restore, what follows from open days is made again, exactly."""

from datetime import timedelta

import pytest
from django.core.management import call_command

from billing.credit.models import UnpostedUsage
from billing.following.models import Cursor, HourRollup, MinuteRollup
from billing.metering.ingest import ingest
from billing.metering.models import Day, UsageEvent
from control.feed.database_identity import database_id
from tests.fixtures.following import catch_up, finish
from tests.fixtures.usage import NOW, broken_promises, give_credit, make_batch, make_event

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db(transaction=True, databases=["default", "owner"]),
]

TOMORROW = NOW + timedelta(days=1)


@pytest.fixture
def restored(customer, price):
    """Books with a sealed day and an open one, some of it posted and some not followed, whose
    followers knew another database."""
    take_in(make_event(customer, price))
    finish(TOMORROW)
    take_in(make_event(customer, price, received_at=TOMORROW), now=TOMORROW)
    catch_up(TOMORROW)
    give_credit(customer, 10**9, expires_at=TOMORROW + timedelta(days=9), now=TOMORROW)
    take_in(make_event(customer, price, received_at=TOMORROW), now=TOMORROW)
    catch_up(TOMORROW)
    take_in(make_event(customer, price, received_at=TOMORROW), now=TOMORROW)
    Cursor.objects.update(lineage="elsewhere")


def take_in(*events, now=NOW):
    ingest(make_batch(events), now=now)


def rows(table):
    return list(table.objects.order_by("accounted_on", "organization_id").values())


def test_open_days_are_made_again_and_sealed_ones_stay(restored):
    sealed = list(HourRollup.objects.filter(accounted_on=NOW.date()).values())
    call_command("reconcile_followers")
    assert list(HourRollup.objects.filter(accounted_on=NOW.date()).values()) == sealed
    today = HourRollup.objects.get(accounted_on=TOMORROW.date())
    assert (today.request_count, today.ttft_counts[6]) == (3, 3)
    assert MinuteRollup.objects.filter(accounted_on=TOMORROW.date()).get().request_count == 3
    assert UnpostedUsage.objects.get().nanos == 2 * 132_000
    assert broken_promises() == []


def test_followers_go_on_after_it(restored, customer, price):
    call_command("reconcile_followers")
    assert set(Cursor.objects.values_list("lineage", flat=True)) == {database_id()}
    take_in(make_event(customer, price, received_at=TOMORROW), now=TOMORROW)
    catch_up(TOMORROW)
    assert HourRollup.objects.get(accounted_on=TOMORROW.date()).request_count == 4
    assert finish(TOMORROW + timedelta(days=1)) == [TOMORROW.date()]
    assert broken_promises() == []


def test_made_twice_it_is_the_same(restored):
    call_command("reconcile_followers")
    once = [[row | {"id": None} for row in rows(one)] for one in (HourRollup, UnpostedUsage)]
    call_command("reconcile_followers")
    again = [[row | {"id": None} for row in rows(one)] for one in (HourRollup, UnpostedUsage)]
    assert once == again


def test_rows_of_a_dump_name_no_transaction_to_come(
    restored, customer, price, superuser_connection
):
    superuser_connection.execute("UPDATE metering_usage_event SET ingested_xid = '9000000000'")
    superuser_connection.execute("UPDATE metering_day SET closed_xid = '9000000000'")
    call_command("reconcile_followers")
    assert not UsageEvent.objects.filter(ingested_xid__isnull=False).exists()
    assert int(Day.objects.get().closed_xid) <= min(int(one.xid) for one in Cursor.objects.all())
    take_in(make_event(customer, price, received_at=NOW), now=TOMORROW)
    catch_up(TOMORROW)
    assert HourRollup.objects.filter(accounted_on=TOMORROW.date()).count() == 2
    assert finish(TOMORROW + timedelta(days=1)) == [TOMORROW.date()]
    assert broken_promises() == []


def test_facts_stay_facts_after_it(restored, owner_connection):
    call_command("reconcile_followers")
    with pytest.raises(Exception, match="Cannot update or delete"):
        owner_connection.execute("UPDATE metering_usage_event SET output_tokens = 0")
