"""`verify_audit`: verify the audit log's hash chain; exit code 1 when it is broken."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from control.audit import hash_chain
from control.audit.hash_chain import ChainHead


class Command(BaseCommand):
    """Verifies that no audit event was changed, removed or inserted."""

    help = "Prove the chain of deeds. Exit code 1 when it does not hold."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Accept chain heads that were noted elsewhere."""
        parser.add_argument(
            "--holds",
            action="append",
            default=[],
            metavar="POSITION:DIGEST",
            help="an end of the chain as an earlier run printed it; may be given repeatedly",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the faults, or the chain head: note it where nobody with access to this database
        can change it."""
        hash_chain.chain_events()
        noted = [_head(text) for text in options["holds"]]
        proof = hash_chain.verify_chain(now=timezone.now(), noted=noted)
        for fault in proof.faults:
            self.stdout.write(f"FAIL  {fault}")
        if proof.faults:
            raise CommandError(f"the chain is broken: {len(proof.faults)} faults")
        self.stdout.write(f"{proof.position} deeds hold")
        self.stdout.write(str(ChainHead(proof.position, bytes(proof.digest))))


def _head(text: str) -> ChainHead:
    position, _, digest = text.partition(":")
    try:
        return ChainHead(int(position), bytes.fromhex(digest))
    except ValueError as error:
        raise CommandError(f"{text!r} is no end of a chain: wanted POSITION:DIGEST") from error
