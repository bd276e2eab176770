"""Webhooks in the console: the secret once, a log with every call, and nothing for outsiders."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from control.egress import EgressResponse
from control.outbox.services import deliver_due
from control.webhooks.models import WebhookDelivery, WebhookEndpoint
from control.webhooks.services import create_endpoint, send_test
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
FORM = {
    "url": "https://hooks.acme.example/in?token=t0ken",
    "description": "Accounting",
    "event_types": ["invoice.paid", "api_key.created"],
}


@pytest.fixture
def endpoint(org: SeededOrganization) -> WebhookEndpoint:
    return create_endpoint(actor=org.actor, organization=org.organization, **FORM)[0]


@pytest.fixture
def delivery(
    org: SeededOrganization, endpoint: WebhookEndpoint, monkeypatch: pytest.MonkeyPatch
) -> WebhookDelivery:
    """One message that the endpoint answered with 500."""
    monkeypatch.setattr("control.egress.post", lambda *_, **__: EgressResponse(500))
    now = timezone.now()
    delivery = send_test(actor=org.actor, endpoint=endpoint, now=now)
    deliver_due(now=now)
    return delivery


def test_the_secret_is_shown_once(member: Client, org: SeededOrganization) -> None:
    reply = member.post(address(org.organization, "webhook_new"), FORM)
    secret = reply.context["secret"]
    assert reply.status_code == 201
    assert "no-store" in reply["cache-control"]
    assert secret in reply.content.decode()
    endpoint = WebhookEndpoint.objects.get()
    for page in (
        address(org.organization, "webhooks"),
        address(org.organization, "webhook", endpoint.id),
    ):
        shown = member.get(page).content.decode()
        assert secret not in shown
        assert "hooks.acme.example" in shown


def test_a_form_with_a_mistake_keeps_what_was_typed(
    member: Client, org: SeededOrganization
) -> None:
    form = FORM | {"url": "https://169.254.169.254/"}
    page = member.post(address(org.organization, "webhook_new"), form).content.decode()
    assert "must not lead to a private" in page
    assert 'value="https://169.254.169.254/"' in page
    assert re.search(r'value="invoice\.paid" id="id_event_types_\d" checked', page)
    assert not WebhookEndpoint.objects.exists()


def test_an_empty_list_says_what_there_is_to_tell(member: Client, org: SeededOrganization) -> None:
    page = member.get(address(org.organization, "webhooks")).content.decode()
    assert "No endpoints yet" in page
    assert "invoice.finalized" in page


def test_the_log_shows_every_call_and_sends_again(
    member: Client, org: SeededOrganization, endpoint: WebhookEndpoint, delivery: WebhookDelivery
) -> None:
    page = member.get(address(org.organization, "webhook", endpoint.id)).content.decode()
    assert "Failing" in page
    assert "webhook.test" in page
    url = address(org.organization, "webhook_delivery", endpoint.id, delivery.id)
    page = member.get(url).content.decode()
    assert "answered 500" in page
    assert "This is a test." in page
    again = address(org.organization, "webhook_resend", endpoint.id, delivery.id)
    assert member.get(again).status_code == 405
    assert "on its way again" in member.post(again, follow=True).content.decode()
    assert WebhookDelivery.objects.count() == 2


def test_a_test_is_a_button(
    member: Client, org: SeededOrganization, endpoint: WebhookEndpoint
) -> None:
    url = address(org.organization, "webhook_test", endpoint.id)
    assert "A test is on its way" in member.post(url, follow=True).content.decode()
    assert WebhookDelivery.objects.get().event.event_type == "webhook.test"


def test_it_is_changed_switched_and_rotated(
    member: Client, org: SeededOrganization, endpoint: WebhookEndpoint
) -> None:
    def post(section: str, **form: object) -> int:
        url = address(org.organization, section, endpoint.id)
        return member.post(url, form).status_code

    assert post("webhook_update", **FORM | {"event_types": ["balance.low"]}) == 302
    assert post("webhook_update", **FORM | {"event_types": []}) == 400
    assert post("webhook_switch", is_enabled="0") == 302
    endpoint.refresh_from_db()
    assert (endpoint.event_types, endpoint.is_enabled) == (["balance.low"], False)
    assert post("webhook_rotate") == 201
    assert endpoint.secrets.count() == 2


def test_deleting_needs_the_host(
    member: Client, org: SeededOrganization, endpoint: WebhookEndpoint
) -> None:
    url = address(org.organization, "webhook_delete", endpoint.id)
    assert member.post(url, {"confirmation": "hooks"}).status_code == 400
    assert member.post(url, {"confirmation": "hooks.acme.example"}).status_code == 302
    endpoint.refresh_from_db()
    assert endpoint.deleted_at is not None
