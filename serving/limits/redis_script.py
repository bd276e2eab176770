"""One call of the script that counts in Redis, and the time by which all gateways count: Redis's as
heard last, carried on by a clock that is never set."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from serving.contract.codec import NOT_JSON
from serving.contract.limits import EPOCH, STATE
from serving.redis_client import AWAY, open_redis

TRUSTED_SECONDS = 1_800.0
"""How long what was heard is carried on: clocks drift apart by a tenth of `TOLERANCE` meanwhile."""
YIELD_SECONDS = 60.0
"""Whoever put the shared time right and is contradicted within this was wrong itself: a machine
that was suspended does not know it."""
TOLERANCE = 250e3
"""Of microseconds. What Redis says otherwise than this is a step of its clock, not a slow call."""


class SharedClock:
    """In microseconds since `EPOCH`; before anything was heard, by this host's clock."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._offset = (wall() - EPOCH - monotonic()) * 1e6
        self._heard_at: float | None = None
        self._corrected_at = -YIELD_SECONDS

    def now(self) -> float:
        """Return the present moment."""
        return self._monotonic() * 1e6 + self._offset

    def expected(self) -> float | None:
        """Return the present moment where it is known well enough to doubt Redis, else None."""
        heard_at = self._heard_at
        if heard_at is None or self._monotonic() - heard_at > TRUSTED_SECONDS:
            return None
        return self.now()

    def contradicts(self, told: float) -> bool:
        """Tell whether Redis's clock was stepped, by a time that it told just now."""
        expected = self.expected()
        if expected is None or self._monotonic() - self._corrected_at < YIELD_SECONDS:
            return False
        return abs(told - expected) > TOLERANCE

    def correct(self, raw: float) -> float:
        """Return what to add to Redis's own clock, which tells `raw` now, to make it this one."""
        self._corrected_at = self._monotonic()
        return self.now() - raw

    def observe(self, told: float) -> float:
        """Take over a time that Redis told just now; return by how much ours was behind."""
        heard_at = self._monotonic()
        offset = told - heard_at * 1e6
        behind, self._offset, self._heard_at = offset - self._offset, offset, heard_at
        return behind


SCRIPT = Path(__file__).with_name("gcra.lua").read_text()
ANSWER_SECONDS = 1.0
REASON_MAX = 120


class RedisUnavailable(Exception):
    """Redis does not answer, or does not run the script; says why, for an operator."""


class ScriptCall(msgspec.Struct):
    """What `gcra.lua` is asked: limits are numbers, of their names' places after the first key.

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


class ScriptDecision(msgspec.Struct, array_like=True):
    """How one ask came out: when each allowance is full again, and how many run in each place."""

    is_admitted: bool
    full_ats: tuple[float, ...]
    in_use: tuple[int, ...]


class ScriptReply(msgspec.Struct, array_like=True):
    """`ok`, or nothing was done: `clock` says another time than expected, `lost` that Redis's
    memory is not the one that was known. That is called `life` and `age` old; `raw` is the time of
    its own clock, without the offset."""

    id: int
    kind: Literal["ok", "clock", "lost"]
    life: str
    age: float
    now: float
    raw: float
    verdicts: tuple[ScriptDecision, ...]


class CounterStore(Protocol):
    """Where limits are counted for all gateways."""

    async def open(self) -> None:
        """See that it is there, with patience. Raises RedisUnavailable."""

    async def decide(self, names: Sequence[str], batch: ScriptCall) -> ScriptReply:
        """Run a batch over counts of these names. Raises RedisUnavailable."""

    async def close(self) -> None:
        """Let go of it."""


class RedisCounterStore:
    """Over redis-py's pool. Who gives up waiting leaves no answer behind for the next: the library
    closes a connection whose call was cancelled, and each reply must carry its batch's id."""

    def __init__(self, url: str) -> None:
        self._redis = open_redis(url, answer_seconds=ANSWER_SECONDS)
        self._script = self._redis.register_script(SCRIPT)
        self._ids = count(1)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(ScriptReply).decode

    async def open(self) -> None:
        """See that it is there, with patience. Raises RedisUnavailable."""
        try:
            await self._redis.ping()
        except AWAY as error:
            raise RedisUnavailable(_reason(error)) from None

    async def decide(self, names: Sequence[str], batch: ScriptCall) -> ScriptReply:
        """Run a batch over counts of these names. Raises RedisUnavailable."""
        batch.id = next(self._ids)
        try:
            told = await self._script([STATE, *names], [self._encode(batch)])
            reply = self._decode(told)
        except (*AWAY, *NOT_JSON) as error:
            raise RedisUnavailable(_reason(error)) from None
        if reply.id != batch.id:
            await self._redis.connection_pool.disconnect()
            raise RedisUnavailable("it gave another call's answer")
        return reply

    async def close(self) -> None:
        """Let go of it, whatever it says to that."""
        with suppress(*AWAY):
            await self._redis.aclose()


class NoCounterStore:
    """Where no Redis was named: each gateway holds its callers to its part."""

    async def open(self) -> None:
        """Say that there is none."""
        raise RedisUnavailable("REDIS_URL is not set")

    async def decide(self, names: Sequence[str], batch: ScriptCall) -> ScriptReply:
        """Say that there is none."""
        raise RedisUnavailable("REDIS_URL is not set")

    async def close(self) -> None:
        """Nothing was opened."""


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:REASON_MAX]
