"""The export of a person's data: a ZIP of JSON files, one for each kind of data."""

import json
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from control.accounts.models import User
from control.audit.pseudonyms import without_names
from control.audit.selectors import events_by
from control.data_requests.inventory import (
    inventory,
    invitations,
    outbox_mails,
    sessions,
    stored_emails,
)

ABOUT = _(
    """The personal data that this platform holds about you, as of {now} UTC.

Each file is a list. Audit events are what you did; the names of other people are left out. Emails
are listed by kind and time, without their text, which was sent to you. An organization's usage and
payments belong to the organization and are not included.
"""
)
Rows = Iterable[dict[str, Any]]


def write_export(person: User, *, now: datetime, progress: Callable[[int], object]) -> bytes:
    """Return the ZIP; `progress` is called with percentages."""
    parts = dict(_parts(person, now))
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("README.txt", ABOUT.format(now=f"{now:%Y-%m-%d %H:%M}"))
            for number, (name, rows) in enumerate(parts.items(), start=1):
                with archive.open(f"{name}.json", "w") as part:
                    _write(part, rows)
                progress(100 * number // (len(parts) + 1))
        file.seek(0)
        return file.read()


def _write(part: Any, rows: Rows) -> None:
    part.write(b"[")
    for number, row in enumerate(rows):
        text = json.dumps(row, cls=DjangoJSONEncoder, indent=1, ensure_ascii=False)
        part.write(b",\n" * bool(number) + text.encode())
    part.write(b"]\n")


def _parts(person: User, now: datetime) -> Iterator[tuple[str, Rows]]:
    yield "account", [_account(person)]
    for each in inventory():
        if each.told:
            table = each.table.partition(".")[2].lower()
            rows = each.model._default_manager.filter(Q(**{each.field: person.pk}))
            yield f"{table}-{each.field}", rows.order_by("pk").values(*each.told).iterator()
    yield "sessions", [{"expires_at": each.expire_date} for each in sessions(person, now)]
    memberships, operators = invitations(person)
    fields = ("id", "role", "created_at", "expires_at", "accepted_at", "revoked_at")
    yield "invitations", memberships.values("organization__name", *fields)
    yield "operator-invitations", operators.values(*fields)
    yield "mails", _mails(person)
    yield "audit-events", _audit_events(person)


def _account(person: User) -> dict[str, Any]:
    names = ("id", "email", "name", "is_active", "operator_role", "created_at", "last_login")
    return {name: getattr(person, name) for name in names}


def _mails(person: User) -> Iterator[dict[str, Any]]:
    for each in outbox_mails(person).iterator():
        yield {
            "kind": each.payload.get("template"),
            "to": each.payload.get("to"),
            "created_at": each.created_at,
            "delivered_at": each.delivered_at,
        }
    for email in stored_emails(person).iterator():
        yield {"subject": email.subject, "to": email.sent_to, "created_at": email.received_at}


def _audit_events(person: User) -> Iterator[dict[str, Any]]:
    for event in events_by(person.id).iterator(chunk_size=500):
        yield {
            "at": event.created_at,
            "action": event.action,
            "organization_id": event.organization_id,
            "target": f"{event.target_kind} {event.target_id}",
            "details": without_names(event.details),
            "address": event.address,
            "request_id": event.request_id,
        }
