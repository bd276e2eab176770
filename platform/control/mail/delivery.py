"""Sends an email over SMTP, through a mail service, or into the mailbox of this platform."""

import hashlib
import json
import smtplib

from anymail.exceptions import (
    AnymailAPIError,
    AnymailInvalidAddress,
    AnymailRecipientsRefused,
)
from django.conf import settings
from django.core.mail import EmailMultiAlternatives

from control.encryption import DecryptionError, decrypt
from control.mail.services import ENCRYPTION_PURPOSE, KIND, Attachment, make_attachment, render
from control.outbox.delivery import (
    Delivery,
    DeliveryError,
    Handler,
    PermanentFailure,
    without_transaction,
)

PERMANENT = 500
"""SMTP reply codes from here on are final."""


def deliver(delivery: Delivery) -> None:
    """Send one email to one address. A repeat has the same Message-ID."""
    mail = build_message(delivery)
    without_transaction()
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        [(code, _)] = error.recipients.values()
        raise _refusal(code, "the address") from error
    except smtplib.SMTPAuthenticationError as error:
        raise DeliveryError(f"the mail server refused our login ({error.smtp_code})") from error
    except smtplib.SMTPResponseException as error:
        raise _refusal(error.smtp_code, "the mail") from error
    except (AnymailRecipientsRefused, AnymailInvalidAddress) as error:
        raise PermanentFailure("the mail service refused the address") from error
    except AnymailAPIError as error:
        raise _service_error(error) from error
    except OSError as error:  # includes smtplib's own errors
        raise DeliveryError(f"the mail server does not answer ({type(error).__name__})") from error


def build_message(delivery: Delivery) -> EmailMultiAlternatives:
    """Return the email of an outbox message. Raises PermanentFailure if it can no longer be
    built."""
    payload = delivery.payload
    try:
        context = json.loads(decrypt(payload["context"], purpose=ENCRYPTION_PURPOSE))
    except DecryptionError as error:
        raise PermanentFailure("its vault key is gone") from error
    content = render(payload["template"], context)
    mail = EmailMultiAlternatives(
        subject=content.subject,
        body=content.text,
        to=[payload["to"]],
        headers={
            "Message-ID": message_id(delivery.kind, delivery.key),
            "Auto-Submitted": "auto-generated",
        },
        alternatives=[(content.html, "text/html")],
    )
    if "attachment_kind" in payload:
        file = make_attachment(Attachment(payload["attachment_kind"], payload["attachment_id"]))
        mail.attach(file.name, file.content, file.content_type)
    return mail


def message_id(kind: str, key: str) -> str:
    """Return the id of an outbox message's email, by which a mail server recognizes a repeat."""
    mark = hashlib.sha256(f"{kind} {key}".encode()).hexdigest()[:32]
    return f"<{mark}@{settings.CONFIG.console_host}>"


def _service_error(error: AnymailAPIError) -> DeliveryError:
    if error.status_code is None:
        return DeliveryError("the mail service does not answer")
    return DeliveryError(f"the mail service refused the mail ({error.status_code})")


def _refusal(code: int, what: str) -> DeliveryError:
    if code >= PERMANENT:
        return PermanentFailure(f"the mail server refused {what} ({code})")
    return DeliveryError(f"the mail server put {what} off ({code})")


DELIVERIES: dict[str, Handler] = {KIND: deliver}
