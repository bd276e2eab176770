"""Sending mail: decided in the caller's transaction, delivered by the outbox."""

import hashlib
import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.template.loader import get_template

from control.encryption import encrypt
from control.errors import InvalidValue
from control.mail.attachments import Attachment
from control.outbox.services import enqueue

KIND = "mail"
KEY_MAX = 160
VAULT_PURPOSE = "mail"

__all__ = ["Attachment", "send_mail"]


def send_mail(
    *,
    template: str,
    to: Collection[str],
    context: dict[str, Any],
    key: str,
    organization_id: str | None,
    now: datetime,
    attachment: Attachment | None = None,
) -> None:
    """Mail `mail/<template>` to each address by itself, once the transaction commits.

    `context` is JSON: amounts and dates as text. It is kept encrypted, since its links may be
    live. `key` makes it once per address. Raises InvalidValue for what is no e-mail address,
    TemplateDoesNotExist for an unknown template.
    """
    if not 0 < len(key) <= KEY_MAX:
        raise ValueError(f"key has 1 to {KEY_MAX} characters")
    for name in (f"{template}.subject.txt", f"{template}.txt", f"{template}.html"):
        get_template(f"mail/{name}")
    text = json.dumps(context)
    for address in sorted({each.strip() for each in to}):
        _check(address)
        mark = hashlib.sha256(address.lower().encode()).hexdigest()[:16]
        payload = {"template": template, "to": address}
        if attachment is not None:
            payload |= {"attachment_kind": attachment.kind, "attachment_id": attachment.id}
        enqueue(
            kind=KIND,
            key=f"{key}:{mark}",
            payload={**payload, "context": encrypt(text, purpose=VAULT_PURPOSE)},
            organization_id=organization_id,
            now=now,
            lane=f"{KIND}:{mark}",
        )


def _check(address: str) -> None:
    try:
        validate_email(address)
    except ValidationError as error:
        raise InvalidValue("This is no e-mail address.", param="to") from error
