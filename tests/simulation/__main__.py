"""`python -m tests.simulation`: run seeds against the books, in a scratch database on a PostgreSQL
of its own or on the one given. Progress goes to stderr; the first seed that fails is told with the
shortest plan found that fails alike, and the exit status is 1."""

import logging
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from itertools import count as counting
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

import django

from infra.local.config import LocalError
from tests.simulation.progress import Progress
from tests.simulation.server import SERVER_VARIABLE, prepared_server

if TYPE_CHECKING:
    from tests.simulation.run import Report, Simulator

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run what the arguments say; exits with a sentence for the first seed that fails."""
    options = _options()
    if options.seed is not None:
        options.start, options.seeds = options.seed, 1
    _unwind_on_signals()
    logging.disable(logging.CRITICAL)
    progress = Progress(options.seeds, sys.stderr)
    try:
        progress.say("preparing a database")
        with prepared_server(options.server) as url:
            django.setup()  # only now: the settings read the environment that the server made
            seconds = _run_seeds(options, url, progress)
    except LocalError as error:
        sys.exit(str(error))
    finally:
        progress.end()
    print(f"{options.seeds} seeds from {options.start} on are clean, {seconds:.2f} s each")


def _options() -> Namespace:
    parser = ArgumentParser(
        prog="python -m tests.simulation",
        description="Run seeds of simulated gateways, operators and crashes against the books.",
    )
    parser.add_argument("--seeds", type=int, metavar="N", default=200, help="How many (200).")
    parser.add_argument("--start", type=int, metavar="S", default=0, help="The first (0).")
    parser.add_argument("--seed", type=int, metavar="X", help="One alone, with its story told.")
    parser.add_argument("--verbose", action="store_true", help="With its statements.")
    parser.add_argument("--outcomes", action="store_true", help="A line for each seed.")
    parser.add_argument("--no-shrink", action="store_true", help="Tell the whole story.")
    parser.add_argument(
        "--paying", action="store_true", help="Of all seeds those in which customers pay."
    )
    parser.add_argument("--template", help="A prepared database to copy; made if not there.")
    parser.add_argument(
        "--server",
        default=os.environ.get(SERVER_VARIABLE),
        help=f"A PostgreSQL as its superuser, or {SERVER_VARIABLE}; one of its own by default.",
    )
    return parser.parse_args()


def _run_seeds(options: Namespace, url: str, progress: Progress) -> float:
    """Run each seed; return how many seconds one took."""
    from tests.simulation.database import scratch
    from tests.simulation.run import Simulator

    with scratch(url, template=options.template) as database:
        simulator = Simulator(database, verbose=options.seed is not None and options.verbose)
        progress.begin()
        for seed in _seeds(options):
            _run_seed(simulator, seed, progress, options)
        simulator.close()
        return progress.seconds_each


def _run_seed(simulator: "Simulator", seed: int, progress: Progress, options: Namespace) -> None:
    from tests.simulation.shrink import shrink

    report = simulator.run(seed)
    if options.seed is not None:
        _tell(report)
    elif options.outcomes:
        print(f"{seed}: {report.lines[-1]}", flush=True)
    if report.failure is None:
        return progress.step()
    if not options.no_shrink:
        progress.say(f"seed {seed} fails: {report.failure}")
        progress.say("looking for the shortest plan that does")
        _tell(shrink(simulator, report))
    sys.exit(f"seed {seed} fails: {report.failure}")


def _tell(report: "Report") -> None:
    print("\n".join(report.lines), flush=True)


def _seeds(options: Namespace) -> Iterable[int]:
    """Return as many seeds as asked for, from the first on."""
    from tests.simulation.paying import is_paying

    found = (one for one in counting(options.start) if is_paying(one) or not options.paying)
    return islice(found, options.seeds)


def _unwind_on_signals() -> None:
    """Let a signal drop the scratch database on the way out."""

    def unwind(number: int, _frame: object) -> NoReturn:
        for one in STOPS:
            signal.signal(one, signal.SIG_IGN)  # once is enough: the way out is short
        sys.exit(128 + number)

    for number in STOPS:
        signal.signal(number, unwind)


if __name__ == "__main__":
    main()
