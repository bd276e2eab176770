"""Ids: UUIDv7 (RFC 9562), so that rows sort by the time they were made."""

import os
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def uuid7(*, at_ms: int, random_bits: int) -> str:
    """Return the UUIDv7 of a moment (milliseconds since 1970) and 74 random bits, as text."""
    high = (at_ms & (2**48 - 1)) << 16 | 0x7000 | random_bits >> 62 & 0xFFF
    low = 0b10 << 62 | random_bits & (2**62 - 1)
    first, last = f"{high:016x}", f"{low:016x}"
    return f"{first[:8]}-{first[8:12]}-{first[12:]}-{last[:4]}-{last[4:]}"


def new_id() -> str:
    """Return a fresh UUIDv7 as text, from the wall clock and the system's randomness."""
    return uuid7(at_ms=time.time_ns() // 1_000_000, random_bits=secrets.randbits(74))


def same_moment_id(uuid7_text: str) -> str:
    """Return another id that was made at the same millisecond."""
    at_ms = int(uuid7_text[:8] + uuid7_text[9:13], 16)
    return uuid7(at_ms=at_ms, random_bits=secrets.randbits(74))


def moment_of(uuid7_text: str) -> datetime:
    """Return when an id was made, to the millisecond: the time a usage event belongs to.

    Worked example: `0192e4a6-1c00-7…` was made 0x0192e4a61c00 milliseconds after 1970.
    """
    milliseconds = int(uuid7_text[:8] + uuid7_text[9:13], 16)
    return EPOCH + timedelta(milliseconds=milliseconds)


def id_floor(moment: datetime) -> uuid.UUID:
    """Return the smallest id of a request that was received at or after a moment: a range of time
    is a range of ids."""
    milliseconds = max(-((EPOCH - moment) // timedelta(milliseconds=1)), 0)
    return uuid.UUID(int=milliseconds << 80)


RANDOM_BYTES = 10
DRAW_BYTES = RANDOM_BYTES * 400


class EventIdGenerator:
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
        piece = self._drawn[self._at : self._at + RANDOM_BYTES]
        self._at += RANDOM_BYTES
        random_bits = int.from_bytes(piece) >> 6
        return uuid7(at_ms=int(self._now() * 1_000), random_bits=random_bits)
