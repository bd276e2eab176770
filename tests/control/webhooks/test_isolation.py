"""A customer's slow endpoint delays nobody else's messages."""

from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import pytest
from django.db import connection, transaction
from django.utils import timezone

from control.outbox.delivery import OutboxWorker
from control.webhooks.models import WebhookDelivery
from control.webhooks.services import create_endpoint, send_event
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.receiver import Receiver, receiving
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
MESSAGES = 12


@pytest.fixture
def slow(local: None) -> Iterator[Receiver]:
    with receiving() as running:
        running.delay_seconds = 600
        yield running


def subscribe(org: SeededOrganization, receiver: Receiver) -> None:
    create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url=receiver.url,
        event_types=["invoice.paid"],
    )


def tell(org: SeededOrganization) -> None:
    for number in range(MESSAGES):
        key = f"inv_{number}"
        send_event(
            organization_id=org.id,
            event_type="invoice.paid",
            data={"invoice_id": key},
            key=key,
            now=timezone.now(),
        )


def test_a_slow_endpoint_of_one_organization_delays_no_other(
    transactional_db: None, pooled: None, slow: Receiver, receiver: Receiver
) -> None:
    sluggish, quick = make_organization("Sluggish"), make_organization("Quick")
    subscribe(sluggish, slow)
    subscribe(quick, receiver)
    with transaction.atomic():
        tell(sluggish)  # first in line
        tell(quick)
    deliverer = OutboxWorker(threads=8)

    def run() -> None:
        with closing(connection):
            deliverer.run()

    running = Thread(target=run)
    running.start()
    done = WebhookDelivery.objects.exclude(delivered_at=None)
    try:
        wait_until(lambda: done.count() >= MESSAGES, "the quick endpoint's deliveries")
        assert set(done.values_list("endpoint__organization_id", flat=True)) == {quick.id}
        wait_until(lambda: slow.told, "a call of the slow endpoint")
    finally:
        slow.ending.set()
        running.join()
        deliverer.close()
