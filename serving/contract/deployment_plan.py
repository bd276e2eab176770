"""What a fleet says of a deployment before anything starts: the memory that a replica needs, and
how its replicas would be replaced. It is the answer to `GET /plans`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from serving.contract.units import INT64_MAX, Id, Seconds

Bytes = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Rollout = Literal["rolling", "recreate", "refused"]
"""rolling: requests are served throughout; recreate: they wait for a new replica; refused: they
would fail, so the replicas stay as they are."""


class MemoryEstimate(msgspec.Struct, frozen=True):
    """What a replica needs, in bytes over all its devices: its weights, and `token_bytes` of KV
    cache for each token of `slots` sequences, which are `context_tokens` long at most."""

    weights_bytes: Bytes
    token_bytes: Bytes
    context_tokens: int
    slots: int

    @property
    def least_bytes(self) -> int:
        """Weights, and room for one sequence: with less no replica starts."""
        return self.weights_bytes + self.token_bytes * self.context_tokens

    @property
    def full_bytes(self) -> int:
        """Weights, and room for all slots with the longest context at once."""
        return self.weights_bytes + self.token_bytes * self.context_tokens * self.slots


class DeploymentPlan(msgspec.Struct, frozen=True):
    """`needs` is what a replica takes in words, such as "2 × H100"; `estimate` is None where the
    weights' folder cannot be read here. `room` says what is missing for one more replica, empty
    if there is room, and `load_seconds` what the last start took, None if that is not known."""

    deployment_id: Id
    needs: str
    rollout: Rollout
    reason: str = ""
    room: str = ""
    estimate: MemoryEstimate | None = None
    load_seconds: Seconds | None = None


class DeploymentPlans(msgspec.Struct, frozen=True):
    """The plans of all deployments of a fleet."""

    plans: tuple[DeploymentPlan, ...] = ()
