"""A receipt: tokens times price by meter, adding up to the charge; the real outcome."""

import uuid
from datetime import timedelta

import pytest

from billing.reading.receipts import ReceiptLine, receipt
from billing.reading.selectors import recent_events
from control.errors import ObjectNotFound
from tests.fixtures.usage import NOW, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def slip_of(customer, event):
    return receipt(customer.organization, uuid.UUID(event.event_id))


def test_it_says_tokens_times_price(customer, price, book):
    event = make_event(customer, price)
    book(event)
    slip = slip_of(customer, event)
    assert slip.price == price
    assert slip.lines == (
        ReceiptLine("input", 600, 150_000_000, 90_000),
        ReceiptLine("cached_input", 400, 75_000_000, 30_000),
        ReceiptLine("output", 20, 600_000_000, 12_000),
    )
    assert sum(line.amount_nanos for line in slip.lines) == slip.event.charged_nanos == 132_000


@pytest.mark.parametrize("rating", [1, 2])
def test_its_lines_add_up_by_either_rule(customer, price, book, rating):
    tokens = {"input_tokens": 7, "cached_input_tokens": 3, "output_tokens": 1}
    event = make_event(customer, price, rating=rating, **tokens)
    book(event)
    slip = slip_of(customer, event)
    assert sum(line.amount_nanos for line in slip.lines) == slip.event.charged_nanos


def test_what_was_waived_adds_up_too(customer, price, book):
    event = make_event(customer, price, outcome="timed_out")
    book(event)
    slip = slip_of(customer, event)
    assert slip.event.charged_nanos == 0
    assert sum(line.amount_nanos for line in slip.lines) == slip.event.waived_nanos == 132_000


def test_a_lost_request_shows_what_it_really_was(customer, outsider, price, book):
    at = NOW - timedelta(minutes=5)
    lost = make_event(
        customer,
        price,
        received_at=at,
        outcome="gateway_lost",
        cached_input_tokens=0,
        output_tokens=0,
        ttft_seconds=None,
    )
    real = make_event(customer, price, received_at=at, event_id=lost.event_id)
    book(lost)
    book(real)
    slip = slip_of(customer, real)
    assert (slip.event.outcome, slip.event.charged_nanos) == ("completed", 132_000)
    [row] = recent_events(customer.organization, now=NOW)
    assert (row.outcome, row.charged_nanos) == ("completed", 132_000)
    with pytest.raises(ObjectNotFound):
        slip_of(outsider, real)


def test_a_price_that_nobody_published_leaves_its_column_empty(customer, price, book):
    event = make_event(customer, price, price_id="price_unknown")
    book(event)
    slip = slip_of(customer, event)
    assert slip.price is None
    assert {line.nanos_per_million_tokens for line in slip.lines} == {None}
    assert slip.event.charged_nanos == 0


def test_an_archived_request_still_has_one(customer, outsider, price, book, monkeypatch):
    event = make_event(customer, price)
    book(event)
    kept = slip_of(customer, event).event
    archive = {(kept.event_id, customer.id): kept}
    monkeypatch.setattr(
        "billing.following.archive.find_event",
        lambda event_id, organization_id: archive.get((event_id, organization_id)),
    )
    monkeypatch.setattr("billing.reading.selectors._events", lambda _: type(kept).objects.none())
    assert slip_of(customer, event).event == kept
    with pytest.raises(ObjectNotFound):
        slip_of(outsider, event)


def test_anothers_looks_like_a_missing_one(customer, outsider, price, book):
    event = make_event(customer, price)
    book(event)
    for event_id in (uuid.UUID(event.event_id), uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)):
        with pytest.raises(ObjectNotFound, match="no such request"):
            receipt(outsider.organization, event_id)
