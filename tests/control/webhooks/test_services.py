"""Endpoints are told once per message, signed, again until they answer, and no longer than that."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.db import ProgrammingError, transaction
from django.utils import timezone
from standardwebhooks import Webhook, WebhookVerificationError

from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, ObjectNotFound
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due, retry
from control.permissions import Actor
from control.webhooks import selectors, services
from control.webhooks.models import (
    EVENT_TYPES,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookEvent,
    WebhookSecret,
)
from infra.local.config import ROOT
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.receiver import Receiver

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
Made = tuple[WebhookEndpoint, str]
DAY = timedelta(days=1)


def emit(org: SeededOrganization, key: str = "inv_1", now: datetime | None = None) -> None:
    services.send_event(
        organization_id=org.id,
        event_type="invoice.paid",
        data={"invoice_id": key},
        key=key,
        now=now or timezone.now(),
    )


def deliver(now: datetime | None = None) -> None:
    deliver_due(now=now or timezone.now())


def test_a_new_key_is_told_with_a_signature_that_the_library_verifies(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    _, secret = made
    key, key_secret = org.mint()
    deliver()
    [told] = receiver.told
    message = told.verified(secret)
    assert message["type"] == "api_key.created"
    assert message["data"]["key_id"] == key.id
    assert key_secret not in told.body.decode()
    assert told.headers["webhook-id"] == WebhookEvent.objects.get().id
    delivery = WebhookDelivery.objects.get()
    assert (delivery.status, delivery.attempt_count) == ("delivered", 1)
    attempt = WebhookAttempt.objects.get()
    assert (attempt.status, attempt.error) == (200, "")


def test_no_log_tells_an_address_which_may_hold_a_token(
    org: SeededOrganization, made: Made, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    assert "token=t0ken" in receiver.url
    emit(org)
    deliver()
    assert receiver.told
    assert "t0ken" not in caplog.text


def test_a_forged_body_or_another_secret_does_not_verify(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    emit(org)
    deliver()
    [told] = receiver.told
    for secret, body in [(made[1], told.body + b" "), ("whsec_" + "A" * 44, told.body)]:
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, told.headers)


def test_a_repeat_is_one_message(org: SeededOrganization, made: Made, receiver: Receiver) -> None:
    emit(org)
    emit(org)
    deliver()
    emit(org)
    deliver()
    assert len(receiver.told) == 1


def test_only_who_subscribed_is_told(
    org: SeededOrganization, made: Made, outsider: SeededOrganization
) -> None:
    services.send_event(
        organization_id=org.id, event_type="balance.low", data={}, key="1", now=timezone.now()
    )
    emit(outsider)
    assert not OutboxMessage.objects.exists()
    with pytest.raises(ValueError, match="no type"):
        services.send_event(
            organization_id=org.id, event_type="x", data={}, key="1", now=timezone.now()
        )


def test_each_subscribed_endpoint_gets_the_same_message(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    services.create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url=receiver.url,
        event_types=["invoice.paid"],
    )
    emit(org)
    deliver()
    first, second = receiver.told
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


def test_what_fails_is_tried_again_with_the_same_id_and_a_new_time(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    receiver.status = 500
    now = timezone.now()
    emit(org, now=now)
    deliver(now)
    delivery = WebhookDelivery.objects.get()
    assert delivery.status == "waiting"
    assert delivery.next_at == now + timedelta(seconds=5)
    receiver.status = 200
    deliver(now + timedelta(seconds=7))
    first, second = receiver.told
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
    assert [a.error for a in WebhookAttempt.objects.all()] == ["answered 500", ""]
    delivery.refresh_from_db()
    assert (delivery.status, delivery.attempt_count) == ("delivered", 2)


def test_a_message_is_tried_ten_times_over_days_and_then_failed(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    receiver.status = 503
    now = timezone.now()
    emit(org, now=now)
    moments = []
    message = OutboxMessage.objects.get()
    while message.is_open:
        moments.append(message.due_at - now)
        deliver(message.due_at)
        message.refresh_from_db()
    hours = [round(moment.total_seconds() / 3600 / 1.1, 1) for moment in moments]
    assert len(moments) == 10
    assert 70 <= hours[-1] <= 85
    assert WebhookDelivery.objects.get().status == "failed"
    assert message.last_error == "answered 503"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("120", 120),
        ("Sun, 22 Nov 2026 15:00:00 GMT", 3600),
        ("1", 5),  # never sooner than the back-off
        ("Sun, 22 Nov 2026 13:00:00 GMT", 5),  # that is past
        ("999999", 86_400),  # never later than the longest wait
        ("soon", 5),
        ("9" * 400, 5),
    ],
)
def test_an_endpoint_that_asks_for_a_pause_gets_it(
    org: SeededOrganization, made: Made, receiver: Receiver, asked: str, seconds: int
) -> None:
    now = datetime(2026, 11, 22, 14, tzinfo=UTC)
    receiver.status, receiver.headers = 503, {"retry-after": asked}
    emit(org, now=now)
    deliver(now)
    assert WebhookDelivery.objects.get().next_at == now + timedelta(seconds=seconds)
    waits = OutboxMessage.objects.get().due_at - now
    assert timedelta(seconds=seconds) <= waits <= timedelta(seconds=max(seconds, 6))
    assert WebhookAttempt.objects.get().error == "answered 503"


@pytest.mark.parametrize(("status", "seconds"), [(429, 120), (500, 5)])
def test_only_who_is_busy_may_ask_for_one(
    org: SeededOrganization, made: Made, receiver: Receiver, status: int, seconds: int
) -> None:
    receiver.status, receiver.headers = status, {"retry-after": "120"}
    now = timezone.now()
    emit(org, now=now)
    deliver(now)
    assert WebhookDelivery.objects.get().next_at == now + timedelta(seconds=seconds)


def test_pauses_add_no_attempts(org: SeededOrganization, made: Made, receiver: Receiver) -> None:
    receiver.status, receiver.headers = 503, {"retry-after": "60"}
    emit(org)
    message = OutboxMessage.objects.get()
    while message.is_open:
        deliver(message.due_at)
        message.refresh_from_db()
    assert message.attempts == 10
    assert WebhookDelivery.objects.get().status == "failed"


def test_a_redirect_is_a_failure(org: SeededOrganization, made: Made, receiver: Receiver) -> None:
    receiver.status, receiver.headers = 307, {"location": "http://127.0.0.1:1/"}
    emit(org)
    deliver()
    assert WebhookAttempt.objects.get().error == "answered 307: redirects are not followed"


def test_after_five_days_of_only_failures_an_endpoint_is_disabled_with_a_mail(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    EmailAddress.objects.create(user=org.owner, email=org.owner.email, verified=True, primary=True)
    receiver.status = 500
    start = timezone.now()
    for day in range(6):
        emit(org, f"inv_{day}", start + day * DAY)
        deliver(start + day * DAY)
    endpoint = WebhookEndpoint.objects.get()
    assert not endpoint.is_enabled
    assert endpoint.disabled_reason == "Every delivery failed for 5 days."
    assert AuditEvent.objects.filter(action="webhook_endpoint.disabled").count() == 1
    deliver(start + 6 * DAY)
    [message] = mail.outbox
    assert message.to == [org.owner.email]
    assert message.subject == "A webhook endpoint of Acme was disabled"
    calls = len(receiver.told)
    emit(org, "inv_later", start + 7 * DAY)
    deliver(start + 30 * DAY)
    assert len(receiver.told) == calls
    assert not WebhookDelivery.objects.filter(delivered_at=None, failed_at=None).exists()


def test_one_success_forgets_the_failures(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    start = timezone.now()
    for day in range(8):
        receiver.status = 200 if day == 4 else 500
        emit(org, f"inv_{day}", start + day * DAY)
        deliver(start + day * DAY)
    assert WebhookEndpoint.objects.get().is_enabled


def test_an_endpoint_that_says_it_is_gone_is_disabled_at_once(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    receiver.status = 410
    emit(org)
    deliver()
    assert WebhookEndpoint.objects.get().disabled_reason == "The endpoint responded with 410 Gone."
    assert WebhookDelivery.objects.get().status == "failed"


def test_rotation_overlaps_and_ends(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    endpoint, old = made
    now = timezone.now()
    new = services.rotate_secret(actor=org.actor, endpoint=endpoint, now=now)
    emit(org, "inv_1")
    deliver()
    [told] = receiver.told
    assert told.verified(old) == told.verified(new)
    assert len(selectors.valid_secrets(endpoint, now + services.OVERLAP)) == 1
    for _ in range(5):
        services.rotate_secret(actor=org.actor, endpoint=endpoint, now=now)
    assert WebhookSecret.objects.count() == services.SECRETS_MAX


def test_no_secret_lies_readable_in_the_database_or_the_audit(
    org: SeededOrganization, made: Made
) -> None:
    secret = made[1].removeprefix("whsec_")
    assert secret not in WebhookSecret.objects.get().sealed
    assert secret not in json.dumps(list(AuditEvent.objects.values("details")))
    assert "t0ken" not in json.dumps(list(AuditEvent.objects.values("details")))
    assert "t0ken" not in json.dumps(list(OutboxMessage.objects.values("payload")))


def test_a_test_message_and_a_redelivery(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    endpoint, secret = made
    now = timezone.now()
    delivery = services.send_test(actor=org.actor, endpoint=endpoint, now=now)
    deliver()
    again = services.resend(actor=org.actor, delivery=delivery, now=now)
    deliver()
    first, second = receiver.told
    assert first.verified(secret)["type"] == "webhook.test"
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert again.is_repeat


def test_nobodys_server_is_flooded_by_hand(org: SeededOrganization, made: Made) -> None:
    now = timezone.now()
    for _ in range(20):
        services.send_test(actor=org.actor, endpoint=made[0], now=now)
    with pytest.raises(Conflict, match="Try again in a minute"):
        services.send_test(actor=org.actor, endpoint=made[0], now=now)
    later = now + timedelta(minutes=1)
    services.send_test(actor=org.actor, endpoint=made[0], now=later)


def test_nothing_is_sent_to_a_deleted_endpoint(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    emit(org)
    services.delete_endpoint(actor=org.actor, endpoint=made[0], now=timezone.now())
    deliver()
    assert receiver.told == []
    assert OutboxMessage.objects.get().delivered_at
    assert not WebhookSecret.objects.exists()
    with pytest.raises(ObjectNotFound):
        selectors.endpoint(org.organization, made[0].id)


def test_a_disabled_endpoint_is_neither_tested_nor_told(
    org: SeededOrganization, made: Made
) -> None:
    endpoint = services.update_endpoint(actor=org.actor, endpoint=made[0], is_enabled=False)
    emit(org)
    assert not WebhookDelivery.objects.exists()
    with pytest.raises(Conflict):
        services.send_test(actor=org.actor, endpoint=endpoint, now=timezone.now())


def test_an_operator_retries_a_delivery_that_was_given_up(
    org: SeededOrganization, made: Made, receiver: Receiver
) -> None:
    receiver.status = 410
    emit(org)
    deliver()
    services.update_endpoint(actor=org.actor, endpoint=made[0], is_enabled=True)
    receiver.status = 200
    retry(
        actor=Actor.for_system("tests"),
        message=OutboxMessage.objects.get(kind="webhook"),
        now=timezone.now(),
    )
    deliver()
    assert WebhookDelivery.objects.get().status == "delivered"


@pytest.mark.parametrize(
    "wrong",
    [
        {"event_types": []},
        {"event_types": ["webhook.test"]},
        {"description": "x" * 201},
        {"url": "https://0"},
    ],
)
def test_what_does_not_fit_is_refused(
    org: SeededOrganization, made: Made, wrong: dict[str, object]
) -> None:
    with pytest.raises(InvalidValue):
        services.update_endpoint(actor=org.actor, endpoint=made[0], **wrong)


def test_an_organization_has_a_bounded_number(org: SeededOrganization, local: None) -> None:
    def create() -> None:
        services.create_endpoint(
            actor=org.actor,
            organization=org.organization,
            url="https://example.com",
            event_types=["api_key.created"],
        )

    for _ in range(20):
        create()
    with pytest.raises(Conflict, match="at most 20"):
        create()


def test_messages_and_calls_are_written_once(org: SeededOrganization, made: Made) -> None:
    emit(org)
    deliver()
    for rows in (WebhookEvent.objects.all(), WebhookAttempt.objects.all()):
        with pytest.raises(ProgrammingError, match="Cannot update"), transaction.atomic():
            rows.update(id="x" if rows.model is WebhookEvent else 1)


def test_old_messages_are_trimmed_with_their_log(org: SeededOrganization, made: Made) -> None:
    now = timezone.now()
    emit(org, now=now)
    deliver(now)
    assert services.purge(now=now + 59 * DAY) == 0
    assert services.purge(now=now + 61 * DAY) == 1
    assert not WebhookAttempt.objects.exists()
    assert not WebhookDelivery.objects.exists()


def test_every_kind_that_is_offered_says_in_the_docs_when_it_is_sent() -> None:
    words = (ROOT / "docs" / "api" / "webhooks.md").read_text()
    assert not [kind for kind in EVENT_TYPES if f"| `{kind}` |" not in words]
