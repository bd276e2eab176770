"""Engine counters: what an engine itself counted, per replica and minute.

`POST /internal/v1/engine-counters`, stored once by (replica, `at`). Counters only grow within a
replica's life, which begins at `started_at`: what was counted between two samples is their
difference, so a sample that is lost costs no tokens, only the knowledge of their minute.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from serving.contract import SCHEMA
from serving.contract.codec import require
from serving.contract.units import INT64_MAX, At, Id

SAMPLES_MAX = 5_000
"""The most samples in one request."""

Counter = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""A figure over a whole life: a busy replica passes 10^9 tokens in a day."""


class EngineSample(msgspec.Struct, frozen=True):
    """A replica's counters at one moment. `input_tokens` includes `cached_tokens`.

    Prompts and `requests` (finished or aborted) count once per choice, as the engine counts them.
    The probes are the fleet's own test generations: the engine counted them and no usage event
    did. The replica has been there since `started_at`; `ready_seconds` of that it was ready, and
    `busy_seconds` it worked for customers. The sample that `is_last` tells its end.
    """

    replica_id: Id
    deployment_id: Id
    started_at: At
    at: At
    input_tokens: Counter
    output_tokens: Counter
    cached_tokens: Counter
    requests: Counter
    probe_input_tokens: Counter = 0
    probe_output_tokens: Counter = 0
    probe_requests: Counter = 0
    ready_seconds: Counter = 0
    busy_seconds: Counter = 0
    is_last: bool = False

    def __post_init__(self) -> None:
        require(self.at >= self.started_at, "at", self.at, f"started_at, {self.started_at}, or on")


class CountersRequest(msgspec.Struct, frozen=True):
    """Samples on their way; sent again until acknowledged."""

    fleet_id: Id
    samples: Annotated[tuple[EngineSample, ...], Meta(max_length=SAMPLES_MAX)]
    schema: int = SCHEMA


class CountersReply(msgspec.Struct, frozen=True):
    """Billing has committed the samples: the fleet may forget them."""

    accepted: int
    duplicates: int
