"""`reconcile_followers`: after a restore, make again what follows from the events, and go on."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from billing.following.rebuild import forget_foreign_transactions, rebuild
from billing.metering.resent import GatewayResend, resends


def _line(gateway: GatewayResend) -> str:
    """Return what a gateway sent again, as a line."""
    sent = f"{gateway.event_count:,} events again, {gateway.missing_count:,} were missing"
    rest = "" if gateway.is_finished else "; the rest is added when it comes"
    return f"{gateway.gateway_id} sent {sent}{rest}"


class Command(BaseCommand):
    """Safe to run at any time; ingest waits for it."""

    help = "Rebuild rollups and unposted usage of open days from the events, and follow on."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the first day that was made again."""
        now = timezone.now()
        for gateway in resends(since=now):
            self.stdout.write(_line(gateway))
        forget_foreign_transactions(using="owner")
        first = rebuild(now=now)
        self.stdout.write(f"Rebuilt from {first} on; followers go on from here.")
