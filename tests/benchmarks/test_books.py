"""The books' benchmarks do at a tiny size what they do at theirs, and the books are right."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.metering.models import UsageEvent
from serving.contract.usage import UsageBatch
from tests.benchmarks.books.deeds import (
    beside,
    bodies,
    browsing,
    day,
    feeding,
    history,
    polls,
    proof,
    statement,
    webhooks,
    world,
)
from tests.fixtures import database

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

GATEWAY = "gw_1"
TODAY = datetime.now(UTC).date()


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    """A worker has one database for life; a test has one of many."""
    yield
    for remembered in (world.callers, world.price, feeding.bodies):
        remembered.cache_clear()
    polls._held.clear()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, short days and a short past."""
    small: dict[Any, dict[str, int]] = {
        bodies: {"EVENTS_MAX": 20},
        feeding: {"EVENTS_MAX": 20, "BODIES": 4},
        history: {"DAYS_OPEN": 2, "DAYS_SEALED": 2},
        day: {"MINUTES": 7},
    }
    for module, values in small.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


def test_a_past_is_written_followed_sealed_and_right(few: None) -> None:
    history.write_history(database.superuser_url(), 20, 400, TODAY)
    stored, days, seals = proof.count_past()
    assert (stored, days) == (440, 2)
    assert 0 < seals <= 40
    assert proof.failed_checks()[0] == []
    assert {seen.name for seen in browsing.browse(1)} >= {"overview", "usage", "costs API, 30 days"}


def test_fresh_batches_are_all_taken_in_and_followed(few: None) -> None:
    world.make_world(2, 1)
    ready = feeding.get_ready(GATEWAY)
    fed = feeding.feed(GATEWAY, time.time() + 0.2)
    assert fed.accepted > 0
    assert fed.duplicates == 0
    beside.follow_until(0.0)
    assert proof.count_events() == ready + fed.accepted
    assert proof.failed_checks()[0] == []


def test_half_of_a_round_of_repeats_is_new(few: None) -> None:
    world.make_world(2, 1)
    fed = feeding.feed_repeats(GATEWAY, seed=1)
    assert (fed.accepted, fed.duplicates) == (80, 80)


def test_a_poll_takes_all_leases_back_and_a_chain_is_granted(few: None) -> None:
    world.make_world(2, 1)
    polls.get_ready(GATEWAY)
    polled = polls.poll_until(GATEWAY, time.time() + 0.1, asked=4)
    assert polled.returned == 8 * len(polled.milliseconds)
    assert polled.deferred == 0
    assert beside.probe("gw_3", time.time() + 0.01)
    assert proof.failed_checks()[0] == []


def test_a_day_is_lived_closed_and_sealed(few: None) -> None:
    world.make_world(2, 1)
    day.live(TODAY - timedelta(days=1), 70)
    assert proof.count_past()[:2] == (70, 1)
    assert proof.failed_checks()[0] == []


def test_a_storm_of_webhooks_ends_with_each_payment_booked_once(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CONFIG = settings.CONFIG  # what the deeds set is put back
    monkeypatch.setattr("billing.payments.waking._send", lambda: None)
    world.make_world(2, 1)
    url, events, cents = webhooks.prepare(8)
    try:
        for part in range(2):
            webhooks.post(url, events, 3, part, 2)
        assert webhooks.look(url, len(events)) == len(events)
        assert webhooks.count()[:3] == (len(events), 0, cents)
        assert webhooks.send_again(url, events) == cents
    finally:
        webhooks.end()


def test_an_account_is_read_page_by_page_and_whole() -> None:
    statement.write_entries(database.superuser_url(), 2_500)
    assert all(seen.queries <= 10 for seen in statement.browse(1))
    assert {statement.export(form).lines for form in ("csv", "jsonl")} == {2_500}


def test_a_body_is_renewed_with_ids_of_the_moment(few: None) -> None:
    world.make_world(2, 1)
    body = feeding.bodies(GATEWAY)[0]
    batches: list[UsageBatch] = [bodies.batch_of(body.renewed()) for _ in range(2)]
    ids = [id_of(bytes(raw)) for batch in batches for raw in batch.events]
    assert len(set(ids)) == 40
    assert not UsageEvent.objects.exists()


def id_of(raw: bytes) -> bytes:
    """Return the id that an event's bytes begin with."""
    return raw[len(bodies.ID_FIELD) :][: bodies.ID_LENGTH]
