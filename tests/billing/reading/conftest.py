"""Usage as it is read: booked, and summed by its followers."""

from collections.abc import Callable

import pytest

from billing.metering.ingest import ingest
from serving.contract.usage import UsageEvent
from tests.fixtures.usage import NOW, make_batch, roll_up

Book = Callable[..., None]


@pytest.fixture
def book(db: None) -> Book:
    """Return what books events and sums them."""

    def booked(*events: UsageEvent) -> None:
        receipt = ingest(make_batch(events), now=NOW)
        assert receipt.accepted == len(events)
        roll_up()

    return booked
