"""A mail really leaves over SMTP, and what the server answers decides what becomes of it."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from control.mail.server_url import SMTP_BACKEND
from control.mail.services import Attachment, File, send_mail
from control.outbox import delivery
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from tests.fixtures.mails import CONTEXT
from tests.fixtures.smtp import SmtpServer, smtp_server

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
PDF = b"%PDF-1.7 \x00\xff\r\n.\r\n"


@pytest.fixture
def server(settings) -> Iterator[SmtpServer]:
    with smtp_server() as running:
        settings.EMAIL_BACKEND = SMTP_BACKEND
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", running.port
        settings.EMAIL_TIMEOUT = 1
        yield running


def send(attachment: Attachment | None = None) -> OutboxMessage:
    with transaction.atomic():
        send_mail(
            template="invitation",
            to=["new@example.com"],
            context=CONTEXT,
            key="inv_1",
            organization_id="org_1",
            now=timezone.now(),
            attachment=attachment,
        )
    deliver_due(now=timezone.now())
    return OutboxMessage.objects.get()


def test_a_mail_arrives_with_both_parts_and_its_attachment(
    server: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = delivery.registered
    makers = {"invoice_pdf": lambda _: File("Rechnung Ü.pdf", PDF, "application/pdf")}
    monkeypatch.setattr(
        delivery, "registered", lambda name: makers if name == "ATTACHMENTS" else real(name)
    )
    assert send(Attachment("invoice_pdf", "inv_1")).delivered_at
    [message] = server.received
    assert server.recipients == ["new@example.com"]
    assert message["From"] == "Penstock <noreply@127.0.0.1>"
    assert message["Subject"] == "Join Acme on Penstock"
    assert message["Message-ID"].endswith("@127.0.0.1>")
    text, html = message.get_body(("plain",)), message.get_body(("html",))
    assert text is not None
    assert html is not None
    assert CONTEXT["accept_url"] in text.get_content()
    assert "<table" in html.get_content()
    [file] = message.iter_attachments()
    assert file.get_filename() == "Rechnung Ü.pdf"
    assert file.get_payload(decode=True) == PDF


@pytest.mark.parametrize(
    ("verb", "answer", "is_given_up", "reason"),
    [
        ("RCPT", "550 no such person", True, "the mail server refused the address (550)"),
        ("RCPT", "451 greylisted", False, "the mail server put the address off (451)"),
        ("DATA", "554 no spam here", True, "the mail server refused the mail (554)"),
        ("MAIL", "421 too busy", False, "the mail server put the mail off (421)"),
    ],
)
def test_what_the_server_answers_decides(
    server: SmtpServer, verb: str, answer: str, is_given_up: bool, reason: str
) -> None:
    server.refuses[verb] = answer
    message = send()
    assert bool(message.given_up_at) == is_given_up
    assert message.last_error == reason


def test_a_mail_waits_for_a_server_that_stalls_or_is_gone(server: SmtpServer) -> None:
    server.stalls = True
    message = send()
    assert message.is_open
    assert message.last_error.startswith("the mail server does not answer")
    server.stalls = False
    deliver_due(now=message.due_at + timedelta(seconds=1))
    message.refresh_from_db()
    assert message.delivered_at
