"""`python -m control.worker [QUEUE…]`: runs Celery's tasks, each queue in its own processes, so
that a stuck queue delays no other. Without names it runs all queues.

Tasks run in forked processes, which are killed if a task exceeds its time limit: threads can't be.
They share the memory of all modules imported before the first fork.
"""

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import wait
from types import FrameType

QUEUES = {"books": 3, "general": 2, "outbox": 1, "long_jobs": 2}
"""The number of tasks of each queue that run at once. `control.settings` assigns tasks to queues;
the one task of the outbox delivers 48 emails and webhooks at a time in threads."""


def main(arguments: Sequence[str]) -> int:
    """Run the queues until SIGTERM or SIGINT, and return the exit code: 1 if a queue ended by
    itself, which stops the others too."""
    names = list(arguments) or list(QUEUES)
    if unknown := [name for name in names if name not in QUEUES]:
        wanted = ", ".join(QUEUES)
        print(f"penstock run worker: {unknown[0]!r} is no queue; wanted {wanted}", file=sys.stderr)  # noqa: T201
        return 2
    _import_everything()
    from control.required_versions import exit_if_unsupported

    exit_if_unsupported("penstock run worker")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_run, args=(name,), name=name) for name in names]
    signals: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        signals.append(number)
        for each in workers:
            each.terminate()  # Celery lets running tasks finish

    for each in workers:
        each.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    wait([each.sentinel for each in workers])
    was_signalled = bool(signals)
    stop(signal.SIGTERM, None)
    for each in workers:
        each.join()
    return 0 if was_signalled else 1


def _import_everything() -> None:
    from control.celery import app

    app.loader.import_default_modules()
    gc.collect()
    gc.freeze()  # otherwise the collector would write to the pages that the forks share


def _run(name: str) -> None:
    from celery.platforms import set_pdeathsig

    from control.celery import app

    set_pdeathsig(signal.SIGKILL)  # a killed parent leaves no process behind
    app.worker_main(
        [
            *("worker", "--queues", name, "--hostname", f"{name}@%h"),
            *("--pool", "prefork", "--concurrency", str(QUEUES[name])),
            *("--loglevel", "info", "--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
    sys.exit(main(sys.argv[1:]))
