"""The mailbox shows operators the mails that did not leave, and lets them do nothing."""

from datetime import timedelta

import pytest
from django.core.mail import EmailMultiAlternatives
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.mail.backend import MailboxBackend, trim
from control.mail.models import StoredEmail
from control.mail.server_url import MAILBOX_BACKEND
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
LIST = "/admin/mail/storedemail/"
HTML = "<html><head></head><body>Hello <b>Ada</b><script>alert(1)</script></body></html>"


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("operator@penstock.test"))
    return client


@pytest.fixture
def letter() -> StoredEmail:
    message = EmailMultiAlternatives(
        subject="Grüße",
        body="Open https://console.example/invitations/s3cret <now>",
        from_email="Penstock <noreply@example.com>",
        to=["ada@acme.example"],
        headers={"Message-ID": "<one@example.com>"},
        alternatives=[(HTML, "text/html")],
    )
    message.attach("invoice.pdf", b"%PDF", "application/pdf")
    MailboxBackend().send_messages([message])
    MailboxBackend().send_messages([message])  # delivered again, it is there already
    return StoredEmail.objects.get()


def test_a_letter_is_what_would_have_left(letter: StoredEmail) -> None:
    assert letter.subject == "Grüße"
    assert letter.text.startswith("Open https://")
    assert "<b>Ada</b>" in letter.html
    assert b"Message-ID: <one@example.com>" in bytes(letter.source)


def test_operators_read_it(operator: Client, letter: StoredEmail, settings) -> None:
    assert "Grüße" in operator.get(LIST).content.decode()
    page = operator.get(f"{LIST}{letter.pk}/change/").content.decode()
    assert 'sandbox="allow-popups allow-popups-to-escape-sandbox"' in page
    assert f'src="{LIST}{letter.pk}/html/"' in page
    assert "&lt;now&gt;" in page
    assert 'href="https://console.example/invitations/s3cret"' in page


def test_the_html_comes_under_a_policy_of_its_own(operator: Client, letter: StoredEmail) -> None:
    reply = operator.get(f"{LIST}{letter.pk}/html/")
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "sandbox" in policy
    assert "allow-scripts" not in policy
    assert reply.headers["X-Frame-Options"] == "SAMEORIGIN"


def test_an_attachment_is_saved_not_shown(operator: Client, letter: StoredEmail) -> None:
    reply = operator.get(f"{LIST}{letter.pk}/file/0/")
    assert reply.content == b"%PDF"
    assert reply.headers["Content-Disposition"].startswith("attachment")
    assert operator.get(f"{LIST}{letter.pk}/file/1/").status_code == 404


def test_the_list_says_where_mails_go(operator: Client) -> None:
    assert "Emails are not sent" in operator.get(LIST).content.decode()


@pytest.mark.parametrize("path", ["", "{}/change/", "{}/html/", "{}/file/0/"])
def test_members_and_lesser_staff_see_none(
    org: SeededOrganization, letter: StoredEmail, path: str
) -> None:
    url = LIST + path.format(letter.pk)
    assert org.browser().get(url).status_code == 302
    clerk = Client()
    clerk.force_login(User.objects.create_user("clerk@penstock.test", operator_role="support"))
    assert clerk.get(url).status_code in (403, 404)


def test_old_letters_go(letter: StoredEmail) -> None:
    assert trim(now=timezone.now()) == 0
    assert trim(now=timezone.now() + timedelta(days=31)) == 1


def test_the_product_has_the_mailbox_unless_told_otherwise(settings) -> None:
    assert settings.CONFIG.mail_server.backend == MAILBOX_BACKEND
