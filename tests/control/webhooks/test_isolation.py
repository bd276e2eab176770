"""A customer's slow endpoint delays nobody else's messages."""

import time
from collections.abc import Iterator

import pytest
from django.db import transaction
from django.utils import timezone

from control.outbox.deliverer import Deliverer
from control.webhooks.models import Attempt, Delivery
from control.webhooks.services import create_endpoint, emit
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.receiver import Receiver, receiving

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
MESSAGES = 12


@pytest.fixture
def slow(local: None) -> Iterator[Receiver]:
    with receiving() as running:
        running.delay_seconds = 1
        yield running


def subscribe(org: SeededOrganization, receiver: Receiver) -> None:
    create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url=receiver.url,
        kinds=["invoice.paid"],
    )


def tell(org: SeededOrganization) -> None:
    for number in range(MESSAGES):
        key = f"inv_{number}"
        emit(
            organization_id=org.id,
            kind="invoice.paid",
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
    deliverer = Deliverer(threads=8)
    began = time.monotonic()
    deliverer.run()
    took = time.monotonic() - began
    deliverer.close()
    assert not Delivery.objects.filter(delivered_at=None).exists()
    ended = Attempt.objects.filter(delivery__endpoint__organization_id=quick.id).latest("at").at
    first = Delivery.objects.earliest("created_at").created_at
    assert took >= MESSAGES / 2  # two at a time, a second each
    assert (ended - first).total_seconds() < 3
