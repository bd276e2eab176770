"""`penstock credentials rotate-encryption`: encrypt stored secrets with the newest key."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError

from control.management.sealed import SEALED, renew


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
