"""Sends email: renders it, makes links absolute, checks attachments, and puts it into the
outbox."""

import hashlib
import json
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.template import Context
from django.template.loader import get_template

from control.encryption import encrypt
from control.errors import InvalidValue
from control.outbox import delivery
from control.outbox.services import enqueue

TEXT_MAX = 2000
"""Characters of one value; names are far shorter, links fit."""
SUBJECT_MAX = 150
BIDI_CONTROLS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that can make a name read as another; right-to-left letters need none of them."""
KIND = "mail"
KEY_MAX = 160
ENCRYPTION_PURPOSE = "mail"


@dataclass(frozen=True, slots=True)
class Attachment:
    """The kind and id of an attached file, such as `invoice_pdf` and `inv_…`."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class File:
    """An attached file; `content_type` is such as `application/pdf`."""

    name: str
    content: bytes
    content_type: str


def make_attachment(attachment: Attachment) -> File:
    """Return the file, which is only made when the email is delivered. An app's `deliveries.py`
    names in ATTACHMENTS the function that makes each kind. Raises PermanentFailure for an unknown
    kind."""
    maker = delivery.registered("ATTACHMENTS").get(attachment.kind)
    if maker is None:
        raise delivery.PermanentFailure(f"no app makes the attachment {attachment.kind}")
    file: File = maker(attachment.id)
    return file


def absolute(path: str) -> str:
    """Return the public URL of a console path, built from the configured address and never from a
    request's Host header. Raises ValueError for anything but a path."""
    if not path.startswith("/") or path.startswith("//") or not path.isprintable():
        raise ValueError("a link is made of a path: /org_…/billing")
    return f"{settings.CONFIG.console_url}{path}"


def with_configured_host(url: str) -> str:
    """Return a URL that was built from a request, with the configured host instead."""
    parts = urlsplit(url)
    return absolute(parts.path + (f"?{parts.query}" if parts.query else ""))


@dataclass(frozen=True, slots=True)
class RenderedEmail:
    """The subject, text and HTML of an email."""

    subject: str
    text: str
    html: str


def render(template: str, context: dict[str, Any]) -> RenderedEmail:
    """Return the email `mail/<template>` with its values. HTML is escaped, text is not.

    Raises TemplateDoesNotExist if one of its three files is missing.
    """
    values = {**cleaned(context), "console_url": absolute("/")}
    subject = " ".join(
        _render_template(f"mail/{template}.subject.txt", values, autoescape=False).split()
    )
    return RenderedEmail(
        subject=_cut(subject, SUBJECT_MAX),
        text=_render_template(f"mail/{template}.txt", values, autoescape=False).strip() + "\n",
        html=_render_template(f"mail/{template}.html", values, autoescape=True).strip() + "\n",
    )


def cleaned(value: Any) -> Any:
    """Return JSON with each text on one line, without control characters, and not too long, since
    strangers may choose the names in it."""
    if isinstance(value, dict):
        return {name: cleaned(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(each) for each in value]
    return _clean(value) if isinstance(value, str) else value


def _clean(text: str) -> str:
    kept = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c
        for c in text[: TEXT_MAX + 1]
        if c not in BIDI_CONTROLS
    )
    return _cut(kept, TEXT_MAX)


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def _render_template(name: str, values: dict[str, Any], *, autoescape: bool) -> str:
    template: Any = get_template(name)
    return str(template.template.render(Context(values, autoescape=autoescape)))


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
    """Send the email `mail/<template>` to each address separately, once the transaction commits.

    `context` is JSON: amounts and dates as text. It is stored encrypted, since its links may be
    live. `key` makes the email unique per address. Raises InvalidValue for an invalid email
    address, TemplateDoesNotExist for an unknown template.
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
            payload={**payload, "context": encrypt(text, purpose=ENCRYPTION_PURPOSE)},
            organization_id=organization_id,
            now=now,
            lane=f"{KIND}:{mark}",
        )


def _check(address: str) -> None:
    try:
        validate_email(address)
    except ValidationError as error:
        raise InvalidValue("This is not an email address.", param="to") from error
