"""`penstock credentials rotate-encryption`: encrypt stored secrets with the newest key.

Everything that is encrypted with `control.encryption` and outlives a session is listed in `SEALED`.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from allauth.mfa.models import Authenticator
from django.core.management import BaseCommand, CommandError
from django.db import transaction
from django.db.models import Model, QuerySet

from control.accounts import mfa
from control.encryption import DecryptionError, encrypt_anew
from control.mail import services as mail
from control.outbox.models import OutboxMessage
from control.sso.models import SsoConnection
from control.sso.models import purpose_of as purpose_of_provider
from control.webhooks.models import WebhookSecret
from control.webhooks.signing import purpose_of as purpose_of_endpoint

PAGE = 100
"""Rows locked at once, until their page is committed."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A kind of rows with encrypted columns. `renewed` returns the changed fields of a row, none if
    all of it is encrypted with the newest key already."""

    name: str
    rows: Callable[[], QuerySet[Any]]
    renewed: Callable[[Any], dict[str, Any]]


@dataclass(slots=True)
class Progress:
    """The number of rows of a kind that were checked and (to be) encrypted anew, and the ids of
    those that cannot be decrypted."""

    name: str
    total: int
    seen: int = 0
    renewed: int = 0
    unreadable: tuple[str, ...] = ()


def renew(sealed: Sealed, *, dry_run: bool) -> Iterator[Progress]:
    """Encrypt the rows of one kind with the newest key; yield after each page is committed.

    A run that stops loses nothing: the next one encrypts the rest.
    """
    rows = sealed.rows().order_by("pk")
    progress, last = Progress(sealed.name, rows.count()), None
    while True:
        with transaction.atomic():
            page = rows if last is None else rows.filter(pk__gt=last)
            locked = list(page.select_for_update(of=("self",), no_key=True)[:PAGE])
            for row in locked:
                _renew_row(sealed, row, progress, dry_run=dry_run)
        yield progress
        if len(locked) < PAGE:
            return
        last = locked[-1].pk


def _renew_row(sealed: Sealed, row: Model, progress: Progress, *, dry_run: bool) -> None:
    progress.seen += 1
    try:
        fields = sealed.renewed(row)
    except DecryptionError:
        progress.unreadable += (str(row.pk),)
        return
    if not fields:
        return
    progress.renewed += 1
    if not dry_run:
        for name, value in fields.items():
            setattr(row, name, value)
        row.save(update_fields=list(fields))


def _renewed_secret(row: WebhookSecret) -> dict[str, Any]:
    anew = encrypt_anew(row.sealed, purpose=purpose_of_endpoint(row.endpoint_id))
    return {"sealed": anew} if anew else {}


def _renewed_connection(row: SsoConnection) -> dict[str, Any]:
    purpose = purpose_of_provider(row.organization_id)
    anew = encrypt_anew(row.sealed_secret, purpose=purpose)
    return {"sealed_secret": anew} if anew else {}


def _renewed_factor(row: Authenticator) -> dict[str, Any]:
    anew = {
        name: renewed
        for name in ("secret", "seed")  # of an authenticator app; of recovery codes
        if name in row.data and (renewed := mfa.encrypt_anew(row.data[name]))
    }
    return {"data": row.data | anew} if anew else {}


def _renewed_mail(row: OutboxMessage) -> dict[str, Any]:
    anew = encrypt_anew(row.payload["context"], purpose=mail.ENCRYPTION_PURPOSE)
    return {"payload": row.payload | {"context": anew}} if anew else {}


SEALED = (
    Sealed("second factors", Authenticator.objects.all, _renewed_factor),
    Sealed(
        "providers' secrets",
        lambda: SsoConnection.objects.exclude(sealed_secret=""),
        _renewed_connection,
    ),
    Sealed("webhook secrets", WebhookSecret.objects.all, _renewed_secret),
    Sealed(
        "mails to be sent",
        lambda: OutboxMessage.objects.filter(kind=mail.KIND, delivered_at__isnull=True),
        _renewed_mail,
    ),
)


class Command(BaseCommand):
    """Rotates encryption keys. Run it in control's environment, with the new key as
    `PENSTOCK_ENCRYPTION_KEY` and the previous one in `PENSTOCK_ENCRYPTION_KEYS_PREVIOUS`; it may be
    stopped and run again at any time."""

    help = "Encrypt stored secrets with the newest key; exit status 1 if one cannot be read."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the dry-run switch."""
        parser.add_argument("--dry-run", action="store_true", help="Count, and change nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the progress of each kind, page by page, and the rows that cannot be read."""
        is_dry = options["dry_run"]
        renewed, unreadable = 0, []
        for sealed in SEALED:
            for progress in renew(sealed, dry_run=is_dry):
                self.stdout.write(
                    f"{progress.name}: {progress.renewed} of {progress.total}"
                    f" ({progress.seen} checked)"
                )
            renewed += progress.renewed
            unreadable += [f"{progress.name} {row_id}" for row_id in progress.unreadable]
        self.stdout.write(f"{renewed} {'to encrypt anew' if is_dry else 'encrypted anew'}")
        if unreadable:
            for each in unreadable:
                self.stdout.write(f"cannot be read with any key: {each}")
            raise CommandError(
                f"{len(unreadable)} cannot be read; put their key into"
                " PENSTOCK_ENCRYPTION_KEYS_PREVIOUS"
            )
