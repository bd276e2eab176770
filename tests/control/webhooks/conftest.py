"""A webhook endpoint of a customer's."""

import pytest

from control.webhooks.models import WebhookEndpoint
from control.webhooks.services import create_endpoint
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.receiver import Receiver


@pytest.fixture
def made(org: SeededOrganization, receiver: Receiver) -> tuple[WebhookEndpoint, str]:
    """An endpoint that is told of keys, and its secret."""
    return create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url=receiver.url,
        event_types=["api_key.created", "invoice.paid"],
    )
