"""Rate limits as gateways count them in Redis and as the console reads them there, and the
heartbeats by which control knows how many gateways share them.

A limit of n a minute is an allowance that holds a minute's worth and comes back evenly (GCRA). All
that is kept of it is `full_at`: the moment at which it will be whole again. Moments are
microseconds of the time that all gateways share: Redis's own, plus an offset that is kept beside
the counts, so that a stepped clock changes nothing."""

from typing import Literal, get_args

import msgspec

from serving.contract.units import Id

Measure = Literal["requests", "input_tokens", "output_tokens", "concurrent"]
"""What is limited: three by the minute, and how many requests run at once. Input is what was not
cached."""
MEASURES: tuple[Measure, ...] = get_args(Measure)
MINUTE = 60e6
"""Of microseconds: what an allowance holds at most, and so the burst."""
EPOCH = 1_767_225_600
"""2026-01-01, in Unix seconds: what shared time counts from, so that a float tells fractions of a
microsecond."""
STATE = "{limits}:state"
"""The hash with the offset of shared time and the name of Redis's present life. The braces keep all
counts in one slot of a cluster, where one script may touch them."""


def count_name(owner_id: str, measure: Measure, model_id: str | None = None) -> str:
    """Return what a count is called: of an organization, a project or a key, on all models or on
    one. Concurrent requests are a hash by gateway (`running until`), all others a `full_at`."""
    of_model = "" if model_id is None else f"/{model_id}"
    return f"{{limits}}:{owner_id}{of_model}:{measure}"


def shared_time(seconds: int, microseconds: int, offset: float) -> float:
    """Return what Redis's TIME means as shared time."""
    return (seconds - EPOCH) * 1e6 + microseconds + offset


def used(full_at: float, now: float, limit: int) -> float:
    """Return how much of a limit by the minute is used at a moment; debts go beyond it."""
    return max(full_at - now, 0.0) * limit / MINUTE


HEARTBEAT_SECONDS = 5.0
"""How often a gateway tells control that it lives."""
HEARTBEAT_MISSED_SECONDS = 16.0
"""After this long without a heartbeat a gateway counts no more: three of them and a little."""


class GatewayHeartbeat(msgspec.Struct, frozen=True):
    """A gateway lives, or leaves in order."""

    gateway_id: Id
    is_leaving: bool = False
