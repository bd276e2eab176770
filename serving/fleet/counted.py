"""What an engine counted since its replica's life began: figures that only ever grow."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from serving.contract.units import At
from serving.engine.probe import EngineHealth, ProbeUsage


class Counters(msgspec.Struct, frozen=True):
    """Tokens and ended requests; prompts and requests count once per choice."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0

    def plus(self, grown: "Counters") -> "Counters":
        """Return the sum of both."""
        return _each(lambda one, other: one + other, self, grown)

    def plus_probe(self, made: ProbeUsage) -> "Counters":
        """Return these with one more of the fleet's own test generations."""
        return self.plus(Counters(made.prompt_tokens, made.completion_tokens, 0, 1))

    def since(self, before: "Counters") -> "Counters":
        """Return what was added; an engine whose figures fell has begun anew, from zero."""
        added = _each(lambda now, then: now - then, self, before)
        return self if min(msgspec.structs.astuple(added)) < 0 else added


NOTHING = Counters()


class Counted(msgspec.Struct, frozen=True):
    """The total of a replica's life, and the `engine`'s own figures it was last brought up to.

    An engine that we started began at zero with its replica. What another one counted before we
    first looked (`engine` is None until then) is not the replica's. `probes` are those that the
    total includes. The time between two looks was busy if customers' work was counted in it, or
    requests run at its end.
    """

    total: Counters = NOTHING
    engine: Counters | None = NOTHING
    probes: Counters = NOTHING
    busy_seconds: float = 0.0
    seen_at: At | None = None

    def saw(self, vitals: EngineHealth, probes: Counters, at: datetime) -> "Counted":
        """Return the total brought up to the engine's figures at a moment."""
        engine = counters_of(vitals)
        grown = NOTHING if self.engine is None else engine.since(self.engine)
        is_busy = not vitals.is_idle or grown != probes.since(self.probes)
        seconds = (at - self.seen_at).total_seconds() if self.seen_at else 0.0
        return Counted(
            total=self.total.plus(grown),
            engine=engine,
            probes=probes,
            busy_seconds=self.busy_seconds + (max(0.0, seconds) if is_busy else 0.0),
            seen_at=at,
        )


UNSEEN = Counted(engine=None)


def counters_of(vitals: EngineHealth) -> Counters:
    """Return what an engine shows of its work."""
    return Counters(
        input_tokens=vitals.prompt_tokens,
        output_tokens=vitals.generation_tokens,
        cached_tokens=vitals.cached_tokens,
        requests=vitals.requests,
    )


def _each(verb: Callable[[int, int], int], one: Counters, other: Counters) -> Counters:
    pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
    return Counters(*(verb(*pair) for pair in pairs))
