"""Redis as limits see it: one script, a batch in and a reply out, within a time."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from serving.contract.codec import NOT_JSON
from serving.contract.limits import EPOCH, STATE
from serving.limits.shared_clock import TOLERANCE
from serving.redis_client import AWAY, open_redis

SCRIPT = Path(__file__).with_name("window.lua").read_text()
ANSWER_SECONDS = 1.0
REASON_MAX = 120


class WindowAway(Exception):
    """Redis does not answer, or does not run the script; says why, for an operator."""


class Batch(msgspec.Struct):
    """What `window.lua` is asked: limits are numbers, of their names' places after the first key.

    `known` are moments to catch up to, `settled` what ended requests took more or less than they
    had asked for, `running` our running requests, `asked` the steps and places that others want.
    """

    gateway: str
    new_life: str
    expected: float | None = None
    life: str | None = None
    offset: float | None = None
    known: Sequence[tuple[int, float]] = ()
    settled: Sequence[tuple[int, float]] = ()
    running: Sequence[tuple[int, int]] = ()
    asked: Sequence[tuple[Sequence[tuple[int, float]], Sequence[tuple[int, int]]]] = ()
    id: int = 0
    epoch: int = EPOCH
    tolerance: float = TOLERANCE


class Told(msgspec.Struct, array_like=True):
    """How one ask came out: when each allowance is full again, and how many run in each place."""

    is_admitted: bool
    full_ats: tuple[float, ...]
    in_use: tuple[int, ...]


class Reply(msgspec.Struct, array_like=True):
    """`ok`, or nothing was done: `clock` says another time than expected, `lost` that Redis's
    memory is not the one that was known. That is called `life` and `age` old; `raw` is the time of
    its own clock, without the offset."""

    id: int
    kind: Literal["ok", "clock", "lost"]
    life: str
    age: float
    now: float
    raw: float
    verdicts: tuple[Told, ...]


class Window(Protocol):
    """Where limits are counted for all gateways."""

    async def open(self) -> None:
        """See that it is there, with patience. Raises WindowAway."""

    async def judge(self, names: Sequence[str], batch: Batch) -> Reply:
        """Run a batch over counts of these names. Raises WindowAway."""

    async def close(self) -> None:
        """Let go of it."""


class RedisWindow:
    """Over redis-py's pool. Who gives up waiting leaves no answer behind for the next: the library
    closes a connection whose call was cancelled, and each reply must carry its batch's id."""

    def __init__(self, url: str) -> None:
        self._redis = open_redis(url, answer_seconds=ANSWER_SECONDS)
        self._script = self._redis.register_script(SCRIPT)
        self._ids = count(1)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Reply).decode

    async def open(self) -> None:
        """See that it is there, with patience. Raises WindowAway."""
        try:
            await self._redis.ping()
        except AWAY as error:
            raise WindowAway(_reason(error)) from None

    async def judge(self, names: Sequence[str], batch: Batch) -> Reply:
        """Run a batch over counts of these names. Raises WindowAway."""
        batch.id = next(self._ids)
        try:
            told = await self._script([STATE, *names], [self._encode(batch)])
            reply = self._decode(told)
        except (*AWAY, *NOT_JSON) as error:
            raise WindowAway(_reason(error)) from None
        if reply.id != batch.id:
            await self._redis.connection_pool.disconnect()
            raise WindowAway("it gave another call's answer")
        return reply

    async def close(self) -> None:
        """Let go of it, whatever it says to that."""
        with suppress(*AWAY):
            await self._redis.aclose()


class NoWindow:
    """Where no Redis was named: each gateway holds its callers to its part."""

    async def open(self) -> None:
        """Say that there is none."""
        raise WindowAway("REDIS_URL is not set")

    async def judge(self, names: Sequence[str], batch: Batch) -> Reply:
        """Say that there is none."""
        raise WindowAway("REDIS_URL is not set")

    async def close(self) -> None:
        """Nothing was opened."""


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:REASON_MAX]
