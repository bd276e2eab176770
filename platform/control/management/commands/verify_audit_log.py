"""`penstock audit verify`: verify the audit log's hash chain; exit status 1 if it is broken."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from control.audit import hash_chain
from control.audit.hash_chain import ChainHead


class Command(BaseCommand):
    """Verifies that no audit event was changed, removed or inserted."""

    help = "Verify the audit log's hash chain. Exit status 1 if it is broken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Accept chain heads that were noted elsewhere, and the JSON switch."""
        parser.add_argument(
            "--holds",
            action="append",
            default=[],
            metavar="POSITION:DIGEST",
            help="a chain head as an earlier run printed it; may be given repeatedly",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the faults, or the chain head: note it where nobody with access to this database
        can change it."""
        hash_chain.chain_events()
        noted = [_head(text) for text in options["holds"]]
        verification = hash_chain.verify_chain(now=timezone.now(), noted=noted)
        head = str(ChainHead(verification.position, bytes(verification.digest)))
        if options["json"]:
            found = {"events": verification.position, "head": head, "faults": verification.faults}
            self.stdout.write(json.dumps(found))
        else:
            for fault in verification.faults:
                self.stdout.write(f"FAIL  {fault}")
        if verification.faults:
            raise CommandError(f"the chain is broken: {len(verification.faults)} faults")
        if not options["json"]:
            self.stdout.write(f"{verification.position} audit events verified")
            self.stdout.write(head)


def _head(text: str) -> ChainHead:
    position, _, digest = text.partition(":")
    try:
        return ChainHead(int(position), bytes.fromhex(digest))
    except ValueError as error:
        raise CommandError(f"{text!r} is not a chain head; enter POSITION:DIGEST") from error
