"""Webhook endpoints in the management API: for admins, and missing for everybody else."""

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from control.outbox.services import deliver_due
from control.webhooks.models import WebhookDelivery, WebhookEndpoint
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.receiver import Receiver

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
BASE = "webhook-endpoints"
WISH = {"url": "https://example.com/hooks", "event_types": ["invoice.paid", "api_key.created"]}


@pytest.fixture
def delivery(
    org: SeededOrganization, made: tuple[WebhookEndpoint, str], receiver: Receiver
) -> WebhookDelivery:
    org.mint()
    deliver_due(now=timezone.now())
    return WebhookDelivery.objects.get()


def test_an_endpoint_is_made_and_its_secret_shown_once(api: APIClient) -> None:
    reply = api.post(BASE, WISH)
    body = reply.json()
    assert reply.status_code == 201
    assert body["secret"].startswith("whsec_")
    assert body["event_types"] == ["invoice.paid", "api_key.created"]
    shown = api.get(f"{BASE}/{body['id']}").json()
    assert "secret" not in shown
    assert api.get(BASE).json()["data"] == [shown]


def test_an_endpoint_is_changed_and_deleted(api: APIClient) -> None:
    one = f"{BASE}/{api.post(BASE, WISH).json()['id']}"
    changes = {"is_enabled": False, "description": "ours"}
    assert changes.items() <= api.patch(one, changes).json().items()
    assert api.patch(one, {"event_types": ["balance.low"]}).json()["event_types"] == ["balance.low"]
    assert api.post(f"{one}/test").status_code == 409
    assert api.delete(one).status_code == 204
    assert api.get(one).status_code == 404


def test_deliveries_are_listed_shown_and_repeated(
    api: APIClient, made: tuple[WebhookEndpoint, str], delivery: WebhookDelivery, receiver: Receiver
) -> None:
    one = f"{BASE}/{made[0].id}/deliveries"
    [listed] = api.get(one).json()["data"]
    assert (listed["event_type"], listed["status"]) == ("api_key.created", "delivered")
    shown = api.get(f"{one}/{delivery.id}").json()
    assert shown["body"].startswith('{"type": "api_key.created"')
    assert [call["status"] for call in shown["attempts"]] == [200]
    again = api.post(f"{one}/{delivery.id}/resend")
    assert (again.status_code, again.json()["event_id"]) == (202, shown["event_id"])
    deliver_due(now=timezone.now())
    assert len(receiver.told) == 2


def test_a_secret_is_rotated(api: APIClient, made: tuple[WebhookEndpoint, str]) -> None:
    secret = api.post(f"{BASE}/{made[0].id}/rotate").json()["secret"]
    assert secret.startswith("whsec_")
    assert secret != made[1]


def test_bad_input_is_refused_by_name(api: APIClient) -> None:
    for field, value in (
        ("url", "http://example.com"),
        ("url", "https://169.254.169.254/"),
        ("url", "https://example.com/" + "x" * 2000),
        ("event_types", []),
        ("event_types", ["webhook.test"]),
        ("event_types", "invoice.paid"),
        ("secret", "whsec_mine"),
        ("organization_id", "org_other"),
        ("disabled_reason", "x"),
    ):
        reply = api.post(BASE, {**WISH, field: value})
        assert reply.status_code == 400, field
        assert str(reply.json()["error"]["param"]).startswith(field)
    assert not WebhookEndpoint.objects.exists()
