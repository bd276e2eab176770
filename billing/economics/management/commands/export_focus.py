"""`export_focus --from DAY --to DAY [--organization ID]`: usage and cost as FOCUS CSV on stdout."""

from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.economics.focus import Days, focus_csv
from control.errors import ServiceError
from control.organizations.selectors import organizations


class Command(BaseCommand):
    """Writes the file as it is made, a day at a time."""

    help = "Write usage and cost of days of the books as FOCUS 1.2 CSV, exact to the nano."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the days, both included, and an organization."""
        parser.add_argument("--from", dest="first", type=date.fromisoformat, required=True)
        parser.add_argument("--to", dest="last", type=date.fromisoformat, required=True)
        parser.add_argument("--organization", metavar="ID", help="One alone; all by default.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the CSV. Raises CommandError for a senseless period or an unknown organization."""
        chosen = options["organization"]
        if chosen is not None and not organizations().filter(id=chosen).exists():
            raise CommandError(f"There is no organization {chosen}.")
        try:
            days = Days(options["first"], options["last"], chosen)
        except ServiceError as error:
            raise CommandError(error.message) from error
        for chunk in focus_csv(days):
            self.stdout.write(chunk.decode(), ending="")
