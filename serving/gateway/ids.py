"""Event ids for the hot path: UUIDv7, with the system's randomness drawn 4 KB at a time."""

import os
import time
from collections.abc import Callable

from serving.contract.ids import uuid7

BYTES_EACH = 10
DRAW_BYTES = BYTES_EACH * 400


class IdMaker:
    """Makes ids; a system call for each would cost more than the rest of its making. `now` is
    seconds since 1970."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._drawn = b""
        self._at = 0

    def __call__(self) -> str:
        """Return a fresh UUIDv7 as text."""
        if self._at >= len(self._drawn):
            self._drawn, self._at = os.urandom(DRAW_BYTES), 0
        piece = self._drawn[self._at : self._at + BYTES_EACH]
        self._at += BYTES_EACH
        random_bits = int.from_bytes(piece) >> 6
        return uuid7(at_ms=int(self._now() * 1_000), random_bits=random_bits)
