"""Mails under test: deliver what was decided, and read it."""

import re

from django.core import mail
from django.core.mail import EmailMultiAlternatives
from django.utils import timezone

from control.outbox.services import deliver_due

CONTEXT = {
    "inviter": "ada@acme.example",
    "organization": "Acme",
    "role": "viewer",
    "accept_url": "https://console.example/invitations/s3cret",
    "days": 7,
}
"""What the mail of an invitation says."""


def delivered() -> list[EmailMultiAlternatives]:
    """Deliver all that is due, and return every mail of the test, the oldest first."""
    deliver_due(now=timezone.now())
    return mail.outbox


def link_in(message: EmailMultiAlternatives, part: str) -> str:
    """Return the link of a mail's text that has a part such as `/confirm-email/`."""
    links = re.findall(r"https?://\S+", str(message.body))
    return next(link for link in links if part in link)


def html_of(message: EmailMultiAlternatives) -> str:
    """Return the HTML of a mail."""
    [alternative] = message.alternatives
    assert alternative.mimetype == "text/html"
    return str(alternative.content)
