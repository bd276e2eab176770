"""`simulate_books`: run seeds against the books; exit code 1 when one fails, with its trace."""

import logging
import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from itertools import count as counting
from itertools import islice
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError

from billing.simulation.database import scratch
from billing.simulation.paying import is_paying
from billing.simulation.progress import Progress
from billing.simulation.run import Report, Simulator
from billing.simulation.shrink import shrink

SERVER_VARIABLE = "PENSTOCK_SIMULATION_SERVER"
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Command(BaseCommand):
    """Makes a database of its own on the server it is given, and drops it."""

    help = "Run seeds of simulated gateways, operators and crashes against the books."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """SERVER_VARIABLE is the address of a PostgreSQL as who may make databases in it."""
        parser.add_argument("--template", help="A prepared database to copy; made if not there.")
        parser.add_argument("--seeds", type=int, default=200, help="How many.")
        parser.add_argument("--start", type=int, default=0, help="The first.")
        parser.add_argument(
            "--paying", action="store_true", help="Of all seeds those in which customers pay."
        )
        parser.add_argument("--seed", type=int, help="One alone, with its story told.")
        parser.add_argument("--verbose", action="store_true", help="With its statements.")
        parser.add_argument("--no-shrink", action="store_true", help="Tell the whole story.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises CommandError for the first seed that fails."""
        self._tells = options["seed"] is not None
        start, count = options["start"], options["seeds"]
        if self._tells:
            start, count = options["seed"], 1
        logging.disable(logging.CRITICAL)
        _unwind_when_told_to_end()
        progress = Progress(count, sys.stderr)
        try:
            with scratch(_server(), template=options["template"]) as database:
                simulator = Simulator(database, verbose=self._tells and options["verbose"])
                progress.begin()
                for seed in _seeds(start, count, only_paying=options["paying"]):
                    self._run(simulator, seed, progress, options)
                simulator.close()
        finally:
            progress.end()
        seconds = progress.seconds_each
        self.stdout.write(f"{count} seeds from {start} on are clean, {seconds:.2f} s each")

    def _run(
        self, simulator: Simulator, seed: int, progress: Progress, options: dict[str, Any]
    ) -> None:
        report = simulator.run(seed)
        if self._tells:
            self._tell(report)
        elif options["verbosity"] > 1:
            self.stdout.write(f"{seed}: {report.lines[-1]}")
        if report.failure is None:
            return progress.step()
        if not options["no_shrink"]:
            progress.say(f"seed {seed} fails: {report.failure}")
            progress.say("looking for the shortest plan that does")
            self._tell(shrink(simulator, report))
        raise CommandError(f"seed {seed} fails: {report.failure}")

    def _tell(self, report: Report) -> None:
        for line in report.lines:
            self.stdout.write(line)


def _seeds(start: int, count: int, *, only_paying: bool) -> Iterable[int]:
    """Return so many seeds from one on."""
    return islice((one for one in counting(start) if is_paying(one) or not only_paying), count)


def _server() -> str:
    """Return where databases are made. Raises CommandError."""
    try:
        return os.environ[SERVER_VARIABLE]
    except KeyError:
        raise CommandError(f"{SERVER_VARIABLE} is not set") from None


def _unwind_when_told_to_end() -> None:
    """Let a signal drop the scratch database on the way out."""

    def unwind(number: int, _frame: object) -> NoReturn:
        for one in STOPS:
            signal.signal(one, signal.SIG_IGN)  # once is enough: the way out is short
        sys.exit(128 + number)

    for number in STOPS:
        signal.signal(number, unwind)
