"""`reconcile_followers`: after a restore, make again what follows from the events, and go on."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from billing.following.rebuild import forget_foreign_transactions, rebuild


class Command(BaseCommand):
    """Safe to run at any time; ingest waits for it."""

    help = "Rebuild rollups and unposted usage of open days from the events, and follow on."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the first day that was made again."""
        forget_foreign_transactions(using="owner")
        first = rebuild(now=timezone.now())
        self.stdout.write(f"Rebuilt from {first} on; followers go on from here.")
