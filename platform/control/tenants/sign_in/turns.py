"""How many sign-ins are worked on at once in a process. Each hashes, asks the database twenty times
and wants the interpreter between: sixteen at once would slow each other, and everybody, down. Under
a flood from sixteen connections others took 640 ms (p95) without rests, 280 with them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, local

AT_ONCE = max(2, os.cpu_count() or 2)
WAIT_SECONDS = 2.0

_all = BoundedSemaphore(AT_ONCE)
_strangers = BoundedSemaphore(AT_ONCE - 1)
"""Who comes on a device and from a network that nobody knows: one turn is left for the others."""
_mine = local()


class Busy(Exception):
    """There was no turn in time."""


@contextmanager
def turn(*, is_known: bool) -> Iterator[None]:
    """Wait for a turn, and have it until the block ends; in it another costs nothing. Raises
    Busy."""
    if getattr(_mine, "is_held", False):
        yield
        return
    with _one_of(*([_all] if is_known else [_strangers, _all])):
        _mine.is_held = True
        try:
            yield
        finally:
            _mine.is_held = False


@contextmanager
def _one_of(*semaphores: BoundedSemaphore) -> Iterator[None]:
    held: list[BoundedSemaphore] = []
    try:
        for each in semaphores:
            if not each.acquire(timeout=WAIT_SECONDS):
                raise Busy
            held.append(each)
        yield
    finally:
        for each in held:
            each.release()
