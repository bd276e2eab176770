"""`close_month --period 2026-11 [--organization ID] [--dry-run]`: invoice a month."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from billing.invoicing.periods import Period, parse_period
from billing.invoicing.printed import dollars
from billing.invoicing.services.closing import Outcome, close_month, preview_month
from control.errors import ServiceError
from control.permissions import Actor


class Command(BaseCommand):
    """Makes an invoice for each organization that used anything; run again, it goes on."""

    help = "Close a month of the books: an invoice for each organization that used anything in it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the month, an organization, and whether to change anything."""
        parser.add_argument("--period", required=True, metavar="2026-11", help="A UTC month.")
        parser.add_argument("--organization", metavar="ID", help="One alone; all by default.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Print what would be invoiced; change nothing."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Close the month. Raises CommandError where it cannot be closed, or not for all."""
        try:
            period = parse_period(options["period"])
            if options["dry_run"]:
                return self._preview(period, options["organization"])
            outcome = close_month(
                period=period,
                actor=Actor.for_system("close-month"),
                now=timezone.now(),
                organization_id=options["organization"],
                progress=self._progress,
            )
        except ServiceError as error:
            raise CommandError(error.message) from error
        self._report(period, outcome)
        return None

    def _progress(self, done: int, all_: int) -> None:
        if done == all_ or done % 50 == 0:
            self.stdout.write(f"{done:,} of {all_:,} organizations")

    def _preview(self, period: Period, organization_id: str | None) -> None:
        count = total = problems = 0
        for one in preview_month(
            period=period, now=timezone.now(), organization_id=organization_id
        ):
            if one.totals is None:
                problems += 1
                self.stdout.write(f"{one.organization_id}  PROBLEM  {one.problem}")
                continue
            count, total = count + 1, total + one.totals.total_cents
            credit = dollars(one.totals.credit_applied_cents)
            self.stdout.write(
                f"{one.organization_id}  {one.line_count} lines  "
                f"usage {dollars(one.totals.subtotal_cents)}  credit {credit}  "
                f"tax {dollars(one.totals.tax_cents)}  due {dollars(one.totals.total_cents)}"
            )
        self.stdout.write(f"{period}: {count} invoices, {dollars(total)} due; nothing was changed")
        if problems:
            raise CommandError(f"{problems} organizations cannot be invoiced")

    def _report(self, period: Period, outcome: Outcome) -> None:
        total = sum(invoice.total_cents for invoice in outcome.invoices)
        made = len(outcome.invoices)
        self.stdout.write(f"{period}: {made} invoices made, {dollars(total)} due")
        for organization_id, reason in outcome.failures.items():
            self.stdout.write(f"FAIL  {organization_id}  {reason}")
        if not outcome.is_finished:
            raise CommandError(
                f"{len(outcome.failures)} organizations have no invoice yet; run it again"
            )
