"""`check_integrity`: prove the books, one line per check; exit code 1 when one fails."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from billing.following.integrity import check_and_tell


class Command(BaseCommand):
    """Checks ledger, credit and usage against each other, in one snapshot."""

    help = "Prove that the ledger, the leases and the usage agree. Exit code 1 when they do not."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line per check, with up to three counterexamples."""
        findings = check_and_tell(now=timezone.now())
        for finding in findings:
            self.stdout.write(f"{'ok  ' if finding.holds else 'FAIL'}  {finding.sentence}")
            for example in finding.shown:
                self.stdout.write(f"      {example}")
        failed_count = sum(not finding.holds for finding in findings)
        if failed_count:
            raise CommandError(f"{failed_count} of {len(findings)} checks failed")
        self.stdout.write(f"all {len(findings)} checks hold")
