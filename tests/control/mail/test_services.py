"""A mail leaves by a mail service, and what that answers decides what becomes of it."""

import json

import pytest
import requests
from django.db import transaction
from django.utils import timezone

from control.mail.server_url import MailServer
from control.mail.services import send_mail
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from tests.fixtures.mails import CONTEXT

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
SENT = {"ErrorCode": 0, "Message": "OK", "MessageID": "1", "SubmittedAt": "now", "To": "new@x"}
INACTIVE = {
    "ErrorCode": 406,
    "Message": "Found inactive addresses: new@example.com. Inactive recipients are ones that …",
}


def send() -> OutboxMessage:
    with transaction.atomic():
        send_mail(
            template="invitation",
            to=["new@example.com"],
            context=CONTEXT,
            key="inv_1",
            organization_id="org_1",
            now=timezone.now(),
        )
    deliver_due(now=timezone.now())
    return OutboxMessage.objects.get()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, SENT, ""),
        (401, {"ErrorCode": 10, "Message": "t0ken"}, "the mail service refused the mail (401)"),
        (422, INACTIVE, "the mail service refused the address"),
        (503, {}, "the mail service refused the mail (503)"),
    ],
)
def test_postmark(
    settings, monkeypatch: pytest.MonkeyPatch, status: int, body: dict[str, object], reason: str
) -> None:
    server = MailServer.from_url("anymail+postmark://t0ken@")
    settings.EMAIL_BACKEND, settings.ANYMAIL = server.backend, {**server.anymail}
    asked: list[dict[str, object]] = []

    def answer(_: requests.Session, **wish: object) -> requests.Response:
        asked.append(wish)
        reply = requests.Response()
        reply.status_code = status
        reply._content = json.dumps(body).encode()
        return reply

    monkeypatch.setattr(requests.Session, "request", answer)
    message = send()
    assert message.last_error == reason
    assert bool(message.delivered_at) == (status == 200)
    assert asked[0]["timeout"]


def test_a_service_that_is_away_is_said_to_be(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    server = MailServer.from_url("anymail+postmark://t0ken@")
    settings.EMAIL_BACKEND, settings.ANYMAIL = server.backend, {**server.anymail}

    def away(_: requests.Session, **wish: object) -> requests.Response:
        raise requests.ConnectionError

    monkeypatch.setattr(requests.Session, "request", away)
    assert send().last_error == "the mail service does not answer"
