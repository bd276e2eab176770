"""A day of events is a partition, found by the moment that its ids begin with."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import Error, connection
from hypothesis import given
from hypothesis import strategies as st

from billing.metering.ingest import ingest
from billing.metering.partitions import ensure_days, first_id, missing_days
from billing.metering.tasks import DAYS_AHEAD, make_partitions
from serving.contract.ids import uuid7
from tests.fixtures.usage import NOW, make_batch, make_event

DAY = date(2031, 3, 1)


@pytest.mark.unit
@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.integers(0, 2**74 - 1),
)
def test_every_id_of_a_day_is_within_its_bounds(moment, random_bits):
    made = uuid7(at_ms=int(moment.timestamp() * 1000), random_bits=random_bits)
    assert first_id(moment.date()) <= made < first_id(moment.date() + timedelta(days=1))


@pytest.mark.integration
@pytest.mark.django_db
def test_a_day_is_made_once():
    assert missing_days([DAY]) == [DAY]
    ensure_days([DAY])
    ensure_days([DAY])
    assert missing_days([DAY]) == []


@pytest.mark.integration
@pytest.mark.django_db
def test_the_task_makes_the_coming_days():
    make_partitions()
    today = datetime.now(UTC).date()
    assert missing_days(today + timedelta(days=step) for step in range(DAYS_AHEAD + 1)) == []


@pytest.mark.integration
@pytest.mark.django_db
def test_events_lie_in_the_partitions_of_their_days(customer, price):
    days = [NOW - timedelta(days=step) for step in range(3)]
    ingest(make_batch(make_event(customer, price, received_at=at) for at in days), now=NOW)
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT tableoid::regclass::text FROM metering_usage_event")
        names = {row[0] for row in cursor.fetchall()}
    assert names == {f"metering_usage_event_202611{day}" for day in (19, 20, 21)}


@pytest.mark.integration
@pytest.mark.django_db
def test_an_event_is_never_changed(customer, price):
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    with pytest.raises(Error, match=r"denied|facts"), connection.cursor() as cursor:
        cursor.execute("UPDATE metering_usage_event SET output_tokens = 0")
