"""`archive`: move sealed days that are old enough into Parquet files, and drop their partitions."""

from datetime import date
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from billing.following.archive import ArchiveError, archive, to_archive, to_drop
from billing.metering.batch import AGE_MAX


class Command(BaseCommand):
    """Safe to run again after any end."""

    help = "Move sealed days older than ingest's reach into Parquet files; drop their partitions."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the date, the folder and whether only to look."""
        parser.add_argument("--before", type=date.fromisoformat, help="A date; 90 days ago.")
        parser.add_argument("--to", type=Path, help="A folder; PENSTOCK_ARCHIVE_DIR.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line per day. Raises CommandError that says why it stopped."""
        now = timezone.now()
        before = options["before"] or (now - AGE_MAX).date()
        if options["dry_run"]:
            self.stdout.writelines(f"{day}: would be archived" for day in to_archive(before))
            self.stdout.writelines(f"{day}: would be dropped" for day in to_drop(before))
            return
        folder = options["to"] or settings.CONFIG.archive_dir
        if folder is None:
            raise CommandError("PENSTOCK_ARCHIVE_DIR is not set; wanted a folder for archives")
        try:
            for line in archive(before=before, folder=folder, now=now):
                self.stdout.write(line)
        except ArchiveError as error:
            raise CommandError(str(error)) from error
