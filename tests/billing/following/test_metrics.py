"""`/metrics` says whether the books are well."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from billing.following.follow import FOLLOWERS
from billing.following.integrity import check_and_tell
from billing.following.models import Cursor
from billing.metering.ingest import ingest
from billing.metering.models import DeadLetter
from tests.fixtures.credentials import bearer
from tests.fixtures.following import finish
from tests.fixtures.usage import make_batch, make_event, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


def books(client: Client) -> dict[str, float]:
    reply = client.get("/metrics", headers=bearer("control"))
    return {
        "_".join((sample.name.removeprefix("penstock_books_"), *sample.labels.values())): (
            sample.value
        )
        for family in text_string_to_metric_families(reply.content.decode())
        for sample in family.samples
        if sample.name.startswith("penstock_books_")
    }


def test_the_last_proof_is_told_with_its_age(client, customer, superuser_connection):
    assert not {"checks_failed", "proof_age_seconds"} & set(books(client))
    now = timezone.now()
    price = make_price(at=now - timedelta(hours=2))
    check_and_tell(now=now - timedelta(hours=2))
    told = books(client)
    assert told["checks_failed"] == 0
    assert told["proof_age_seconds"] == pytest.approx(7200, abs=60)
    ingest(make_batch([make_event(customer, price, received_at=now)]), now=now)
    superuser_connection.execute("DELETE FROM metering_usage_event")
    check_and_tell(now=now)
    told = books(client)
    assert told["checks_failed"] > 0
    assert told["proof_age_seconds"] < 60


def test_lag_is_told_by_follower(client):
    Cursor.objects.update(followed_at=timezone.now())
    Cursor.objects.filter(name="keys").update(followed_at=timezone.now() - timedelta(hours=1))
    told = books(client)
    lag = {name: told[f"follower_lag_seconds_{name}"] for name in FOLLOWERS}
    assert lag.pop("keys") == pytest.approx(3600, abs=60)
    assert max(lag.values()) < 60


def test_days_that_are_over_are_unsealed_though_nobody_closed_them(client, customer):
    now = timezone.now()
    assert books(client)["days_unsealed"] == 0
    at = now - timedelta(days=3)
    price = make_price(at=at)
    ingest(make_batch([make_event(customer, price, received_at=at)]), now=at)
    assert books(client)["days_unsealed"] == 3
    finish(now - timedelta(days=1))
    assert books(client)["days_unsealed"] in (1, 2)  # an hour after its end a day is closed


def test_dead_letters_are_open_until_somebody_looked(client):
    for name in ("one", "two", "three"):
        DeadLetter.objects.create(
            digest=name,
            gateway_id="gw_1",
            reason="unreadable",
            payload=b"",
            received_at=timezone.now(),
        )
    assert books(client)["dead_letters_open"] == 3
    DeadLetter.objects.filter(digest="one").update(booked_at=timezone.now())
    DeadLetter.objects.filter(digest="two").update(dismissed_at=timezone.now())
    assert books(client)["dead_letters_open"] == 1
