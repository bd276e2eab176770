"""Event ids for the hot path: UUIDv7, with the system's randomness drawn 4 KB at a time."""

import os
import time

from serving.contract.ids import uuid7

BYTES_EACH = 10
DRAW_BYTES = BYTES_EACH * 400


class IdMaker:
    """Makes ids; a system call for each would cost more than the rest of its making."""

    def __init__(self) -> None:
        self._drawn = b""
        self._at = 0

    def __call__(self) -> str:
        """Return a fresh UUIDv7 as text."""
        if self._at >= len(self._drawn):
            self._drawn, self._at = os.urandom(DRAW_BYTES), 0
        piece = self._drawn[self._at : self._at + BYTES_EACH]
        self._at += BYTES_EACH
        random_bits = int.from_bytes(piece) >> 6
        return str(uuid7(at_ms=time.time_ns() // 1_000_000, random_bits=random_bits))
