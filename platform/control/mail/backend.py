"""The Django email backend that stores emails locally: EMAIL_URL is `database:`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage as Source

from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend

from control.mail.models import StoredEmail
from control.mail.services import File

KEEP = timedelta(days=30)


class MailboxBackend(BaseEmailBackend):
    """Stores emails in a table; a repeated one is already there."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Store the emails; return their number."""
        emails = [stored_email(message) for message in email_messages]
        StoredEmail.objects.bulk_create(emails, ignore_conflicts=True)
        return len(emails)


def stored_email(message: EmailMessage) -> StoredEmail:
    """Return an email as a row, read from the bytes that would have been sent."""
    content = message.message().as_bytes()
    source = parsed(content)
    return StoredEmail(
        message_id=str(source["Message-ID"]),
        sent_to=", ".join(message.to),
        sender=message.from_email,
        subject=str(source["Subject"]),
        text=_part(source, "plain"),
        html=_part(source, "html"),
        source=content,
    )


def attachments(email: StoredEmail) -> list[File]:
    """Return the files attached to an email."""
    return [
        File(
            name=part.get_filename() or "attachment",
            content=part.get_payload(decode=True) or b"",  # type: ignore[arg-type]
            content_type=part.get_content_type(),
        )
        for part in parsed(bytes(email.source)).iter_attachments()
    ]


def trim(*, now: datetime) -> int:
    """Delete emails older than 30 days; return their number."""
    count, _ = StoredEmail.objects.filter(received_at__lt=now - KEEP).delete()
    return count


def parsed(content: bytes) -> Source:
    """Return an email's bytes as a tree of parts."""
    return message_from_bytes(content, policy=policy.default)


def _part(source: Source, kind: str) -> str:
    body = source.get_body((kind,))
    return body.get_content() if body is not None else ""
