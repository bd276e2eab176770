"""`simulate_books`: run seeds against the books; exit code 1 when one fails, with its trace."""

import logging
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.simulation.database import scratch
from billing.simulation.run import Report, Simulator
from billing.simulation.shrink import shrink


class Command(BaseCommand):
    """Makes a database of its own on the server it is given, and drops it."""

    help = "Run seeds of simulated gateways, operators and crashes against the books."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """`--server` is the address of a PostgreSQL as who may make databases in it."""
        parser.add_argument("--server", required=True, help="PostgreSQL, as its superuser.")
        parser.add_argument("--seeds", type=int, default=200, help="How many.")
        parser.add_argument("--start", type=int, default=0, help="The first.")
        parser.add_argument("--seed", type=int, help="One alone, with its story told.")
        parser.add_argument("--verbose", action="store_true", help="With its statements.")
        parser.add_argument("--no-shrink", action="store_true", help="Tell the whole story.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises CommandError for the first seed that fails."""
        start, count = options["start"], options["seeds"]
        if options["seed"] is not None:
            start, count = options["seed"], 1
        logging.disable(logging.CRITICAL)
        tells = options["seed"] is not None
        with scratch(options["server"]) as database:
            simulator = Simulator(database, verbose=tells and options["verbose"])
            began = time.monotonic()
            for seed in range(start, start + count):
                report = simulator.run(seed)
                if options["verbosity"] > 1 and not tells:
                    self.stdout.write(f"{seed}: {report.lines[-1]}")
                if tells:
                    self._tell(report)
                if report.failure is not None:
                    if not options["no_shrink"]:
                        self._tell(shrink(simulator, report))
                    raise CommandError(f"seed {seed} fails: {report.failure}")
            simulator.close()
            seconds = time.monotonic() - began
        self.stdout.write(f"{count} seeds from {start} on are clean, {seconds / count:.2f} s each")

    def _tell(self, report: Report) -> None:
        for line in report.lines:
            self.stdout.write(line)
