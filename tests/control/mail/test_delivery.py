"""Mails are decided with their cause, keep their links secret, and read well whoever is named."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from django.core import mail
from django.db import transaction
from django.template import TemplateDoesNotExist
from django.utils import timezone

from control.accounts.adapter import MAILS
from control.encryption import DecryptionError, decrypt, encrypt
from control.errors import InvalidValue
from control.mail.services import (
    Attachment,
    File,
    absolute,
    cleaned,
    render,
    send_mail,
    with_configured_host,
)
from control.outbox import delivery
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from tests.fixtures.mails import CONTEXT, delivered, html_of, link_in

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
HOSTILE = [
    "Acme\r\nBcc: victim@example.com\r\n\r\nbody",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "\u202egnp.exe \u2066Acme\u2069",
    "שלום וברכה",
    "A" * 10_000,
    "\x00\x1b[31mred",
    "{{ settings.SECRET_KEY }}{% include 'x' %}",
    "=?utf-8?q?Bcc=3A_x?=",
]


def send(**changes: Any) -> None:
    values = {
        "template": "invitation",
        "to": ["new@example.com"],
        "context": CONTEXT,
        "key": "inv_1",
        "organization_id": "org_1",
        "now": timezone.now(),
        **changes,
    }
    with transaction.atomic():
        send_mail(**values)


def test_a_mail_has_text_and_html_and_its_link_in_both() -> None:
    send()
    [message] = delivered()
    assert message.to == ["new@example.com"]
    assert message.subject == "Join Acme on Penstock"
    assert link_in(message, "s3cret") == CONTEXT["accept_url"]
    html = html_of(message)
    assert html.count(f'href="{CONTEXT["accept_url"]}"') == 2  # the button, and the bare link
    assert "prefers-color-scheme: dark" in html
    assert "http://127.0.0.1:1" in html  # the configured address
    assert "src=" not in html  # nothing is fetched when it is read


def test_a_repeat_is_one_mail_with_one_message_id() -> None:
    send()
    send()
    [message] = delivered()
    first = message.extra_headers["Message-ID"]
    OutboxMessage.objects.all().delete()
    send()
    deliver_due(now=timezone.now())
    assert mail.outbox[-1].extra_headers["Message-ID"] == first


def test_each_address_is_a_mail_of_its_own() -> None:
    send(to=["b@example.com", "a@example.com", "b@example.com"])
    assert [message.to for message in delivered()] == [["a@example.com"], ["b@example.com"]]


def test_no_link_lies_in_the_outbox_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    send()
    delivered()
    assert "s3cret" not in json.dumps(OutboxMessage.objects.get().payload)
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_harm_nobody(name: str) -> None:
    send(context={**CONTEXT, "organization": name, "inviter": name})
    [message] = delivered()
    source = message.message()
    assert source["Bcc"] is None
    assert source["To"] == "new@example.com"
    assert len(message.subject) <= 150
    assert message.subject.isprintable()
    html = html_of(message)
    assert "<script" not in html
    assert "<img" not in html
    assert not {"\u202e", "\u2066", "\x00", "\x1b"} & set(html + str(message.body))
    assert len(html) < 20_000
    assert link_in(message, "s3cret") == CONTEXT["accept_url"]


@pytest.mark.parametrize(
    "address",
    ["", "nobody", "a@example.com\r\nBcc: b@example.com", "a@b@example.com", "Ada <a@example.com>"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidValue):
        send(to=["good@example.com", address])
    assert not OutboxMessage.objects.exists()


def test_an_unknown_mail_is_refused_where_it_is_decided() -> None:
    with pytest.raises(TemplateDoesNotExist):
        send(template="nothing")


def test_an_attachment_is_made_when_the_mail_leaves() -> None:
    asked: list[str] = []

    def make(id_: str) -> File:
        asked.append(id_)
        return File("invoice.pdf", b"%PDF-1.7", "application/pdf")

    real = delivery.registered
    makers = {"invoice_pdf": make}
    send(attachment=Attachment("invoice_pdf", "inv_9"))
    assert asked == []
    with patch.object(
        delivery, "registered", lambda name: makers if name == "ATTACHMENTS" else real(name)
    ):
        [message] = delivered()
    assert asked == ["inv_9"]
    assert message.attachments[0].filename == "invoice.pdf"


def test_an_attachment_that_nobody_makes_is_given_up() -> None:
    send(attachment=Attachment("nothing", "1"))
    assert delivered() == []
    assert OutboxMessage.objects.get().last_error == "no app makes the attachment nothing"


def test_links_come_from_the_configured_address() -> None:
    assert absolute("/org_1/billing") == "http://127.0.0.1:1/org_1/billing"
    assert (
        with_configured_host("https://evil.example/accounts/x/?y=1")
        == "http://127.0.0.1:1/accounts/x/?y=1"
    )
    for path in ("https://evil.example", "//evil.example/x", "x", "/a\r\nb"):
        with pytest.raises(ValueError, match="made of a path"):
            absolute(path)


def test_cleaning_keeps_what_is_harmless() -> None:
    value = {"a": ["Ü 漢字 👋", 7, None, True], "b": "two\nlines"}
    assert cleaned(value) == {"a": ["Ü 漢字 👋", 7, None, True], "b": "two lines"}


ACCOUNT = {
    "email": "ada@example.com",
    "days": 3,
    "activate_url": "https://console.example/a",
    "password_reset_url": "https://console.example/a",
    "signup_url": "https://console.example/a",
}


@pytest.mark.parametrize("template", sorted(set(MAILS.values())))
def test_the_mails_about_accounts_are_whole(template: str) -> None:
    wording = render(template, ACCOUNT)
    assert wording.subject
    for part in (wording.text, wording.html):
        assert "https://console.example/a" in part
        assert "ada@example.com" in part


def test_text_is_not_escaped_and_html_is() -> None:
    wording = render("invitation", {**CONTEXT, "organization": "R&D <3"})
    assert "R&D <3" in wording.text
    assert "R&amp;D &lt;3" in wording.html
    assert wording.subject == "Join R&D <3 on Penstock"


def test_the_vault_gives_back_what_it_took_and_only_for_its_purpose() -> None:
    token = encrypt("whsec_1", purpose="webhook secret 1")
    assert "whsec" not in token
    assert token != encrypt("whsec_1", purpose="webhook secret 1")
    assert decrypt(token, purpose="webhook secret 1") == "whsec_1"
    for wrong, purpose in [(token, "2"), (token[:-4] + "AAAA", "webhook secret 1"), ("x", "")]:
        with pytest.raises(DecryptionError):
            decrypt(wrong, purpose=purpose)
