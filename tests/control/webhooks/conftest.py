"""A customer's server on the loopback, which the settings of these tests allow."""

import dataclasses
from collections.abc import Iterator
from ipaddress import ip_network

import pytest

from control.webhooks.models import Endpoint
from control.webhooks.services import create_endpoint
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.receiver import Receiver, receiving


@pytest.fixture
def local(settings) -> None:
    """Webhooks may go to this machine, without TLS."""
    loopback = (ip_network("127.0.0.0/8"),)
    settings.CONFIG = dataclasses.replace(
        settings.CONFIG, webhook_http=True, webhook_networks=loopback
    )


@pytest.fixture
def receiver(local: None) -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def made(org: SeededOrganization, receiver: Receiver) -> tuple[Endpoint, str]:
    """An endpoint that is told of keys, and its secret."""
    return create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url=receiver.url,
        kinds=["key.created", "invoice.paid"],
    )
