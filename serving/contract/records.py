"""The records of the change feed: what a gateway and the fleet know of the control plane.

None can be part of a cycle, so the garbage collector need not look at them (`gc=False`): while a
snapshot is read it would stop the loop for what waits to be written to disk.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from serving.contract import SCHEMA
from serving.contract.codec import require
from serving.contract.resources import ReplicaResources
from serving.contract.units import (
    WRITTEN_TIER,
    At,
    Count,
    Digest,
    Id,
    Limit,
    Name,
    NanosPerMillionTokens,
    Seconds,
    Share,
    Tier,
    Tokens,
    WrittenTier,
)

Task = Literal["generate", "embed"]
"""What a model is for: to say something, or to make vectors of texts."""
DEFAULT_FLEET = "default"
"""The fleet of an installation that has one."""
BATCH_TOKENS_MAX = 300_000
"""That all inputs of one request for embeddings may have, as OpenAI allows."""


class RateLimitSettings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Rate limits; None is no limit. Cached input tokens do not count."""

    requests_per_minute: Limit | None = None
    input_tokens_per_minute: Limit | None = None
    output_tokens_per_minute: Limit | None = None
    concurrent_requests: Limit | None = None


class ModelRateLimits(msgspec.Struct, frozen=True, gc=False):
    """Rate limits of one model, beside those of all models together."""

    model_id: Id
    limits: RateLimitSettings


class UsageTierRecord(msgspec.Struct, frozen=True, gc=False):
    """What each of the organizations that stand in a limit tier may do; `service_tiers` are those
    that they may use, None all."""

    limit_tier_id: Id
    limits: RateLimitSettings = RateLimitSettings()
    model_limits: tuple[ModelRateLimits, ...] = ()
    service_tiers: tuple[Tier, ...] | None = None
    schema: int = SCHEMA


class OrganizationRecord(msgspec.Struct, frozen=True, gc=False):
    """An organization as the gateway needs it; `budget_ids` are its balance's, and its limit's
    where one is set (`serving.contract.budget`).

    Its rate limits are those of its limit tier, none where it stands in none; `own_limits` and
    `own_model_limits` are what an operator set for it, each in place of a whole row of the tier's.
    """

    organization_id: Id
    status: Literal["active", "suspended"]
    budget_ids: tuple[Id, ...]
    cache_salt_id: Id
    weight: Count = 1
    limit_tier_id: Id | None = None
    own_limits: RateLimitSettings | None = None
    own_model_limits: tuple[ModelRateLimits, ...] = ()
    takes_idempotency_keys: bool = False
    """Whether its answers are kept for a day, to be given again."""
    is_paying: bool = True
    """Whether it has a share of a busy pool by itself, as has one with a weight above 1: all that
    never paid share that of one."""
    allowed_regions: tuple[Name, ...] | None = None
    """Where its requests may be worked on; None means anywhere."""
    schema: int = SCHEMA


class ProjectRecord(msgspec.Struct, frozen=True, gc=False):
    """A project; it has a budget only where a spend limit is set."""

    project_id: Id
    organization_id: Id
    budget_ids: tuple[Id, ...]
    status: Literal["active", "archived"] = "active"
    limits: RateLimitSettings = RateLimitSettings()
    allowed_origins: tuple[Name, ...] = ()
    """Whose pages may call with its keys (CORS); none means that no page may."""
    schema: int = SCHEMA


class PreviousSecretRecord(msgspec.Struct, frozen=True, gc=False):
    """A secret that a key had before, which opens it until a moment all the same."""

    digest: Digest
    ends_at: At


class ApiKeyRecord(msgspec.Struct, frozen=True, gc=False):
    """An API key by its digest; the secret itself never travels. Revoking deletes the record.

    `models` and `networks` (CIDR) of None mean any; it has a budget where a limit is set. While
    its secret is replaced it has `old_secrets`; others leave the field out.
    """

    key_id: Id
    digest: Digest
    organization_id: Id
    project_id: Id
    budget_ids: tuple[Id, ...]
    scopes: tuple[Name, ...] = ("inference",)
    models: tuple[Name, ...] | None = None
    networks: tuple[Name, ...] | None = None
    expires_at: At | None = None
    limits: RateLimitSettings = RateLimitSettings()
    old_secrets: tuple[PreviousSecretRecord, ...] | UnsetType = UNSET
    schema: int = SCHEMA


class ModelRecord(msgspec.Struct, frozen=True, gc=False):
    """One name that customers may put in `model`, and the variant that answers to it.

    The record's id is the variant's: the default variant carries the model's own public id,
    every variant also answers to `model:precision`. `organization_ids` of None means everyone.
    One that embeds has `dimensions`, the length of its vectors; others have none.
    """

    variant_id: Id
    model_id: Id
    public_id: Name
    aliases: tuple[Name, ...]
    precision: Name
    context_tokens: Tokens
    output_tokens_max: Tokens
    vocabulary_size: Count
    created_at: At
    capabilities: tuple[Name, ...] = ()
    organization_ids: tuple[Id, ...] | None = None
    task: Task = "generate"
    dimensions: Count | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        wanted = f"1 to context_tokens, {self.context_tokens}"
        fits = 1 <= self.output_tokens_max <= self.context_tokens
        require(fits, "output_tokens_max", self.output_tokens_max, wanted)
        if self.task == "embed":
            has_length = self.dimensions is not None and self.dimensions > 0
            require(has_length, "dimensions", self.dimensions, "at least 1 of one that embeds")

    @property
    def request_tokens_max(self) -> int:
        """How many tokens all prompts of a request may have: those of a batch share no context."""
        if self.task == "embed":
            return max(self.context_tokens, BATCH_TOKENS_MAX)
        return self.context_tokens


class DeploymentTimeouts(msgspec.Struct, frozen=True, gc=False):
    """How long a gateway waits for a replica of a deployment, in seconds; `queue_seconds` for a
    free slot of one, `wake_seconds` where none is ready and one is on its way."""

    connect_seconds: Seconds = 2.0
    first_byte_seconds: Seconds = 60.0
    gap_seconds: Seconds = 30.0
    total_seconds: Seconds = 600.0
    queue_seconds: Seconds = 30.0
    wake_seconds: Seconds = 0.0


class DeploymentRecord(msgspec.Struct, frozen=True, gc=False):
    """The desired state of running a variant; `replicas_min` of 0 stops it, whoever asks for it.

    After `sleep_after_seconds` without a request its replicas stop until there is one again (0:
    they never do), which is waited for `wake_seconds`.

    `weights` is where they are (`serving.contract.weights`), and `weights_digest` identifies their
    content, None until it is known; `slots` is how many sequences one replica works on at once, and
    `reserved_share` the part of all slots that is kept free of the tier `batch` for each tier whose
    clients wait, while it is in use; `external_urls` are replicas that somebody else runs (engine
    "external"). The fleet `fleet_id` alone runs it, in `region`, where that is stated.
    """

    deployment_id: Id
    variant_id: Id
    fleet_id: Id
    engine: Literal["vllm", "simulated", "external"]
    weights: Name
    replicas_min: Count
    replicas_max: Count
    slots: Count = 32
    engine_arguments: tuple[Name, ...] = ()
    external_urls: tuple[Name, ...] = ()
    dedicated_to: Id | None = None
    timeouts: DeploymentTimeouts = DeploymentTimeouts()
    reserved_share: Share = 0.1
    task: Task = "generate"
    sleep_after_seconds: Seconds = 0.0
    region: Name | None = None
    weights_digest: Digest | None = None
    resources: ReplicaResources = ReplicaResources()
    """What each of its replicas takes."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        fits = self.replicas_min <= self.replicas_max
        wanted = f"at least replicas_min, {self.replicas_min}"
        require(fits, "replicas_max", self.replicas_max, wanted)
        require(self.slots > 0, "slots", self.slots, "at least 1")
        can_wake = self.timeouts.wake_seconds > 0 and self.engine != "external"
        wanted = "0 where nobody waits for a replica, or others run it"
        sleep = self.sleep_after_seconds
        require(sleep == 0 or can_wake, "sleep_after_seconds", sleep, wanted)

    @property
    def may_sleep(self) -> bool:
        """Whether its replicas stop while nobody needs them; one that is stopped does not sleep."""
        return self.replicas_min > 0 and self.sleep_after_seconds > 0

    @property
    def served_name(self) -> str:
        """What the engine wants in a request's `model`: on a server that others run, its own."""
        return self.weights if self.engine == "external" else self.variant_id


class PriceRecord(msgspec.Struct, frozen=True, gc=False):
    """One band of what a variant costs in a tier, in force from `effective_at`: it applies to
    requests with at least `input_tokens_min` input tokens. All bands of one book begin together.
    """

    price_id: Id
    variant_id: Id
    tier: WrittenTier
    input_nanos: NanosPerMillionTokens
    cached_input_nanos: NanosPerMillionTokens
    output_nanos: NanosPerMillionTokens
    effective_at: At
    input_tokens_min: Tokens = 0
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.tier in WRITTEN_TIER:
            msgspec.structs.force_setattr(self, "tier", WRITTEN_TIER[self.tier])


class ContractPriceRecord(PriceRecord, frozen=True, kw_only=True):
    """A price of one organization's own: it goes before the list price until `ends_at`."""

    organization_id: Id
    ends_at: At | None = None


class GatewayCountRecord(msgspec.Struct, frozen=True, gc=False):
    """How many gateways are live: each one's share when Redis is away."""

    live_gateway_count: Count
    schema: int = SCHEMA
