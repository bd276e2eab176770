"""`release_gateway ID --reason WORDS [--dry-run]`: give back what a lost gateway's leases hold."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from billing.credit.services.lost_gateways import Held, held_by, release_gateway
from control.errors import ServiceError
from control.permissions import Actor
from serving.contract.money import exact_dollars


class Command(BaseCommand):
    """Run again it goes on with what was busy."""

    help = "Release all leases of a gateway whose journal is known to be lost."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the gateway, why, and whether to change anything."""
        parser.add_argument("gateway", metavar="ID")
        parser.add_argument("--reason", default="", help="Why: it is kept in the audit log.")
        parser.add_argument("--dry-run", action="store_true", help="Say what would be released.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Release. Raises CommandError for a gateway that may be alive, or holds nothing."""
        gateway_id, now = options["gateway"], timezone.now()
        try:
            if options["dry_run"]:
                held = held_by(gateway_id, now=now)
                return self._report(gateway_id, held, "held; nothing was changed")
            released = release_gateway(
                actor=Actor.for_system("release-gateway"),
                gateway_id=gateway_id,
                reason=options["reason"],
                now=now,
            )
        except ServiceError as error:
            raise CommandError(error.message) from error
        return self._report(gateway_id, released, "released")

    def _report(self, gateway_id: str, held: Held, done: str) -> None:
        self.stdout.write(
            f"{gateway_id}: {held.lease_count:,} leases of {held.organization_count:,}"
            f" organizations, {exact_dollars(held.held_nanos)} {done}"
        )
