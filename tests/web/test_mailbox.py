"""What a stack without a mail server shows of its mails, over HTTP as in earnest."""

import httpx
import pytest
from django.utils import timezone

from control.accounts.models import User
from control.mail.server_url import MAILBOX_BACKEND
from control.outbox.services import deliver_due
from tests.fixtures.mailbox import Mailbox
from tests.fixtures.organizations import PASSWORD

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


def test_the_link_of_a_mail_is_read_from_the_mailbox(console: str, settings) -> None:
    settings.EMAIL_BACKEND = MAILBOX_BACKEND
    User.objects.create_superuser("operator@penstock.test", PASSWORD)
    with httpx.Client(timeout=60) as stranger:
        page = f"{console}/accounts/signup/"
        stranger.get(page)
        token = stranger.cookies["csrftoken"]
        form = {"email": "ada@acme.test", "password1": PASSWORD, "csrfmiddlewaretoken": token}
        assert stranger.post(page, data=form, headers={"referer": page}).status_code == 302
    deliver_due(now=timezone.now())
    mailbox = Mailbox(f"{console}/admin/", email="operator@penstock.test", password=PASSWORD)
    link = mailbox.link("ada@acme.test", "/accounts/confirm-email/")
    mailbox.close()
    assert link.startswith("http://127.0.0.1:1/accounts/confirm-email/")
