"""Who is due for a month, by seals and the hours of unsealed days: as by the hours of all days."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.following.sealing import seal_day
from billing.invoicing.closes import uninvoiced
from billing.invoicing.models import Invoice
from billing.invoicing.periods import Period
from billing.invoicing.selectors import default_legal_entity
from billing.metering.ingest import ingest
from billing.metering.models import Day
from tests.fixtures.invoicing import NOVEMBER, OCTOBER, october
from tests.fixtures.usage import (
    Customer,
    make_batch,
    make_customer,
    make_event,
    make_price,
    roll_up,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

FIRST_DAY = date(2026, 10, 28)
DAYS = 8
NOW = datetime(2026, 11, 5, tzinfo=UTC)
OUTCOMES = ("completed", "completed", "engine_failed", "gateway_lost")
BY_HOURS = """
SELECT DISTINCT organization_id FROM following_hour_rollup AS rollup
WHERE accounted_on BETWEEN %s AND %s
    AND input_nanos + cached_input_nanos + output_nanos > 0
    AND NOT EXISTS (
        SELECT FROM invoicing_invoice AS invoice
        WHERE invoice.organization_id = rollup.organization_id AND invoice.starts_on = %s
    )
ORDER BY organization_id
"""
REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, DAYS - 1),
        st.sampled_from(OUTCOMES),
        st.sampled_from([0, 20]),
    ),
    max_size=6,
)


def by_hours(period: Period) -> list[str]:
    """Return the organizations that all hours of a month name."""
    with connection.cursor() as cursor:
        cursor.execute(BY_HOURS, [period.starts_on, period.last_day, period.starts_on])
        return [row[0] for row in cursor.fetchall()]


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batches=st.lists(
        st.tuples(REQUESTS, st.integers(0, DAYS), st.integers(0, DAYS)), min_size=1, max_size=3
    ),
    invoiced=st.sets(st.tuples(st.integers(0, 2), st.sampled_from([OCTOBER, NOVEMBER]))),
)
def test_seals_name_whom_the_hours_name(prices_and_customers, batches, invoiced):
    """Requests arrive while days close and are sealed, some after their day, some uncharged."""
    price, customers = prices_and_customers
    with transaction.atomic():
        for requests, closed, sealed in batches:
            take_in(customers, price, requests)
            close_through(closed)
            seal_through(sealed)
        for place, period in invoiced:
            write_invoice(customers[place], period)
        for period in (OCTOBER, NOVEMBER):
            due = uninvoiced(period)
            assert due == by_hours(period)
            for one in customers:
                assert uninvoiced(period, one.id) == [one.id] * (one.id in due)
        transaction.set_rollback(True)


def test_a_sealed_month_is_decided_without_its_hours(prices_and_customers):
    price, customers = prices_and_customers
    take_in(customers, price, [(0, 0, "completed", 20)])
    close_through(DAYS)
    seal_through(DAYS - 1)
    statements: list[str] = []

    def record(execute: Any, sql: str, *others: Any) -> Any:
        statements.append(sql)
        return execute(sql, *others)

    with connection.execute_wrapper(record):
        assert uninvoiced(OCTOBER) == [customers[0].id]
        assert uninvoiced(NOVEMBER) == []
    october_asked, november_asked = [one for one in statements if "following_seal" in one]
    assert "following_hour_rollup" not in october_asked
    assert "following_hour_rollup" in november_asked


@pytest.fixture
def prices_and_customers():
    return make_price(at=october(1)), [make_customer(name) for name in "ABC"]


def take_in(customers: list[Customer], price: Any, requests: list[tuple]) -> None:
    """Ingest requests, and sum up all there is."""
    events = [
        make_event(
            customers[place], price, outcome=outcome, input_tokens=tokens,
            cached_input_tokens=0, output_tokens=tokens,
            received_at=datetime.combine(FIRST_DAY + timedelta(days=day), time(12), UTC),
        )
        for place, day, outcome, tokens in requests
    ]  # fmt: skip
    if events:
        assert ingest(make_batch(events), now=NOW).accepted == len(events)
    roll_up()


def close_through(days: int) -> None:
    """Close the first `days` days, as if before every transaction, this test's own included."""
    for number in range(days):
        values = {"closed_at": NOW, "closed_xid": "0"}
        Day.objects.get_or_create(day=FIRST_DAY + timedelta(days=number), defaults=values)


def seal_through(days: int) -> None:
    """Seal the first `days` days, those of them that are closed."""
    for number in range(days):
        day = FIRST_DAY + timedelta(days=number)
        if Day.objects.filter(day=day).exists():
            assert seal_day(day, now=NOW)


def write_invoice(customer: Customer, period: Period) -> None:
    """Write an invoice of a month, of which nothing matters but whose and when it is."""
    entity = default_legal_entity()
    assert entity is not None
    number = f"{customer.id} {period}"
    nothing = dict.fromkeys(
        ("usage_nanos", "owed_nanos", "paid_before_nanos", "subtotal_cents",
         "credit_applied_cents", "net_cents", "tax_cents", "total_cents"), 0,
    )  # fmt: skip
    Invoice.objects.create(
        organization_id=customer.id, legal_entity=entity, number=number,
        sequence=Invoice.objects.count() + 1, starts_on=period.starts_on, ends_on=period.ends_on,
        issued_at=NOW, due_on=NOW.date(), currency="USD", collection="prepaid", paper="a4",
        buyer={}, seller={}, tax={}, days=[], **nothing,
    )  # fmt: skip
