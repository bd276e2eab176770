"""Processes of their own with Django on one database, as control's and the worker's are."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from multiprocessing import active_children, get_context
from typing import Any

from tests.benchmarks.books.server import Database

DEEDS = "tests.benchmarks.books.deeds"
"""The modules that need Django: this process never imports them, it has none."""


class Worker:
    """One process; what it is asked to do, it does in turn."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def start(self, work: str, *args: Any) -> Future[Any]:
        """Begin a function of DEEDS there, named `module.function`."""
        return self._pool.submit(_work, work, args)

    def run(self, work: str, *args: Any) -> Any:
        """Return what a function of DEEDS returns there."""
        return self.start(work, *args).result()


@contextmanager
def workers(database: Database, count: int) -> Iterator[list[Worker]]:
    """Run so many processes while the block lasts; all of them have started."""
    with ExitStack() as stack:
        hands = [stack.enter_context(_worker(database)) for _ in range(count)]
        for started in [one.start("world.wait") for one in hands]:
            started.result()
        yield hands


@contextmanager
def _worker(database: Database) -> Iterator[Worker]:
    # Spawned: what a forked process inherits of connections and threads is never right.
    pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_boot, initargs=(database,))
    try:
        yield Worker(pool)
    except BaseException:
        for child in active_children():
            child.terminate()  # nobody waits for what it is at
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _boot(database: Database) -> None:
    """Start Django as the application. Its warnings, an alarm each, are not shown."""
    os.environ["PENSTOCK_TEST_SUPERUSER_URL"] = database.superuser_url
    os.environ["DATABASE_URL"] = database.app_url
    os.environ["DATABASE_OWNER_URL"] = database.owner_url
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.fixtures.settings"
    import logging

    import django
    import structlog

    django.setup()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def _work(name: str, args: tuple[Any, ...]) -> Any:
    module, _, function = name.partition(".")
    return getattr(import_module(f"{DEEDS}.{module}"), function)(*args)
