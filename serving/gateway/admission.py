"""Admission: where a request may run, and whether there is money for its worst case, before any
work."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from itertools import chain

import msgspec

from serving.contract.price import Schedule
from serving.contract.prompt import PromptBound
from serving.contract.records import DeploymentRecord, OrganizationRecord
from serving.contract.slot_shares import NEVER_PAID
from serving.contract.units import Tier
from serving.engine.errors import RequestRejected
from serving.gateway.auth import Principal
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.dialects.validation import invalid
from serving.gateway.directory import Directory
from serving.gateway.error_mapping import (
    insufficient_quota,
    leases_recalled,
    model_loading,
    model_unavailable,
    money_held,
    usage_unavailable,
)
from serving.gateway.errors import ServiceUnavailable
from serving.gateway.grammar_check import GrammarChecker
from serving.pool.pool import Pool, Slot
from serving.pool.prefix_history import Blocks, PromptPrefix, blocks_of
from serving.pool.router import choose
from serving.pool.slot_request import USUAL, SlotRequest, TokenWeights
from serving.usage.clock import GatewayClock
from serving.usage.journal import Journal
from serving.usage.leases import (
    BudgetExceeded,
    BudgetReservation,
    LeaseManager,
    LeasesRecalled,
    MoneyHeld,
    ReservationUnavailable,
)

Place = tuple[DeploymentRecord, Pool]
SHARED_BYTES_MIN = 8_192
"""Of a prompt whose beginning is compared with those that run on the only replica: smaller ones
take little of its KV cache."""


def prefix_of_prompt(
    principal: Principal, inference: InferenceRequest, pools: Iterable[Pool]
) -> PromptPrefix | None:
    """Return what the job's prompt begins with; None where it has no whole block, there is one
    replica to go to, or none that remembers. Of one replica's KV cache a large part may be shared.

    The salt is one that nobody outside knows, the organization's (I7).
    """
    replicas, has_kv_bound = 0, False
    for pool in pools:
        if pool.has_prefix_cache:
            replicas += len(pool.replicas)
            has_kv_bound |= pool.has_kv_bound
    if replicas < 2 and not (has_kv_bound and inference.prompt_bytes >= SHARED_BYTES_MIN):
        return None
    salt = principal.cache_salt + inference.model.variant_id
    if not (blocks := blocks_of(inference.engine_request.fields, salt)):
        return None
    is_paying = principal.organization.is_paying
    return PromptPrefix(principal.organization_id if is_paying else NEVER_PAID, blocks)


def in_order(
    candidates: Sequence[Place], inference: InferenceRequest, prefix: PromptPrefix | None = None
) -> tuple[Place, ...]:
    """Return where a job goes, and then where it may go too. What a grammar is compiled for goes on
    only where the same engine has the same weights: that is where it is looked at."""
    if len(candidates) == 1:
        return (candidates[0],)
    home = best(candidates, inference, prefix)
    others = [place for place in candidates if place is not home]
    if inference.engine_request.grammars is not None:
        others = [place for place in others if _compiles_alike(place[0], home[0])]
    return home, *others


def slot_of(
    candidates: Sequence[Place], slot_request: SlotRequest, excluded: Collection[str] = ()
) -> Slot:
    """Return a slot where a job goes, or where it may go too if there is one there before."""
    return candidates[0][1].slot(slot_request, excluded, [pool for _, pool in candidates[1:]])


def bound_of(candidates: Sequence[Place]) -> PromptBound:
    """Return how many tokens a prompt has at most, wherever of these a job goes."""
    bound = candidates[0][1].prompt_bound
    for _, pool in candidates[1:]:
        bound = bound.or_wider(pool.prompt_bound)
    return bound


def deployment_of(candidates: Sequence[Place], slot: Slot) -> DeploymentRecord:
    """Return what a slot is held of."""
    for deployment, pool in candidates:
        if pool is slot.pool:
            return deployment
    raise RuntimeError("a slot is of one of the candidates")


def _compiles_alike(one: DeploymentRecord, other: DeploymentRecord) -> bool:
    return (one.engine, one.weights) == (other.engine, other.weights)


def best(
    candidates: Sequence[Place], inference: InferenceRequest, prefix: PromptPrefix | None = None
) -> Place:
    """Return where a job goes: of the deployments with room one's own before shared ones, and of
    several that which has the replica to take. Where none has room, the one with the shortest wait.
    """
    if len(candidates) == 1:
        return candidates[0]
    open_ = [
        place for place in candidates if place[1].has_room(inference.tier, inference.sequences)
    ]
    if not open_:
        return min(candidates, key=lambda place: (place[1].load, place[0].dedicated_to is None))
    among = [place for place in open_ if place[0].dedicated_to is not None] or open_
    replicas = chain.from_iterable(pool.replicas.values() for _, pool in among)
    choice = choose(replicas, among[0][1].now, sequences=inference.sequences, prefix=prefix)
    if choice is None:
        raise RuntimeError("a pool has room, and none of its replicas")
    deployment_id = choice.replica.record.deployment_id
    return next(place for place in among if place[0].deployment_id == deployment_id)


class Admission(msgspec.Struct, frozen=True):
    """Where the job goes, and after that where it may run too, by what ticket, at what prices, with
    what money held, for a prompt of how many tokens at most."""

    candidates: tuple[Place, ...]
    slot_request: SlotRequest
    schedule: Schedule
    reservation: BudgetReservation
    input_tokens_max: int
    cache_salt: str

    @property
    def deployment(self) -> DeploymentRecord:
        """Where it goes."""
        return self.candidates[0][0]


class AdmissionController:
    """Asks the directory where, and the lease_manager whether."""

    def __init__(
        self,
        directory: Directory,
        lease_manager: LeaseManager,
        journal: Journal,
        clock: GatewayClock,
        grammars: GrammarChecker,
    ) -> None:
        self._directory = directory
        self._lease_manager = lease_manager
        self._journal = journal
        self._clock = clock
        self._grammars = grammars

    async def admit(
        self,
        principal: Principal,
        inference: InferenceRequest,
        now: datetime,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Admission:
        """Hold the worst case on every budget of the chain, of a request received at `now`. Money
        that other requests hold is waited for as long as a slot, while the answer `is_wanted`.

        Raises InsufficientQuota, ServiceUnavailable, or BadRequest for what no engine here can do,
        and for a tier that the model is not sold in.
        """
        if not self._journal.healthy:
            raise usage_unavailable()
        able = self.candidates(inference, principal.organization)
        prefix = prefix_of_prompt(principal, inference, [pool for _, pool in able])
        candidates = in_order(able, inference, prefix)
        deployment, pool = candidates[0]
        if inference.engine_request.grammars is not None:
            await self._grammars.check(
                principal.organization_id, deployment, inference.engine_request.grammars
            )
        schedule = self._schedule(principal, inference, now)
        input_tokens_max = inference.input_tokens_max(bound_of(candidates))
        worst = inference.worst_case_nanos(schedule, input_tokens_max)
        try:
            reservation = await self._lease_manager.reserve(
                *(principal.budget_ids, worst, now),
                patience_seconds=deployment.timeouts.queue_seconds,
                is_wanted=is_wanted,
            )
        except BudgetExceeded as refused:
            raise insufficient_quota(refused, cost_nanos=worst) from None
        except LeasesRecalled:
            raise leases_recalled() from None
        except MoneyHeld:
            raise money_held() from None
        except ReservationUnavailable:
            raise usage_unavailable() from None
        if self._clock.is_in_future(now):
            reservation.void()
            raise usage_unavailable()
        rates = TokenWeights.of(schedule[0])
        slot_request = slot_request_of(
            principal,
            inference,
            deployment,
            token_bytes=pool.queue.token_bytes,
            rates=rates,
            prefix_blocks=() if prefix is None else prefix.blocks,
        )
        return Admission(
            candidates, slot_request, schedule, reservation, input_tokens_max, principal.cache_salt
        )

    def _schedule(
        self, principal: Principal, inference: InferenceRequest, now: datetime
    ) -> Schedule:
        variant_id, organization_id = inference.model.variant_id, principal.organization_id
        self._check_tier(principal, inference.tier)
        schedule = self._directory.schedule(variant_id, organization_id, now, inference.tier)
        if schedule is not None:
            return schedule
        if inference.tier == "default":
            raise model_unavailable()
        raise invalid("service_tier", f"this model is not offered in the tier '{inference.tier}'")

    def _check_tier(self, principal: Principal, tier: Tier) -> None:
        tier_id = principal.organization.limit_tier_id
        record = None if tier_id is None else self._directory.limit_tier(tier_id)
        if record is None or record.service_tiers is None or tier in record.service_tiers:
            return
        known = ", ".join(record.service_tiers)
        wanted = f"'{tier}' is not in your organization's usage tier, which has: {known}"
        raise invalid("service_tier", wanted)

    def candidates(
        self, inference: InferenceRequest, organization: OrganizationRecord
    ) -> list[Place]:
        """Return the deployments that are ready, or soon will be, and able, where the organization
        may be served.

        Raises ServiceUnavailable, or BadRequest naming what none of them is able to.
        """
        pools = self._directory.pools
        known = self._directory.deployments(inference.model.variant_id, organization)
        ready: list[Place] = []
        for deployment in known:
            pool = pools[deployment.deployment_id]
            # Organizations that share a deployment are kept apart in it (I7).
            if pool.is_open and (pool.is_isolating or deployment.dedicated_to is not None):
                ready.append((deployment, pool))
        if not ready:
            raise _not_ready([pools[deployment.deployment_id] for deployment in known])
        able, needs = ready, inference.engine_request.needs
        if needs:
            able = [place for place in ready if needs.keys() <= place[1].capabilities]
        if not able:
            lacking = needs.keys() - ready[0][1].capabilities
            reason = next(reason for feature, reason in needs.items() if feature in lacking)
            raise inference.dialect.rejection(RequestRejected(reason), inference)
        # Nobody is woken, or waited for, where another is there.
        return [place for place in able if place[1].ready] or able


def slot_request_of(
    principal: Principal,
    inference: InferenceRequest,
    deployment: DeploymentRecord,
    *,
    token_bytes: float,
    rates: TokenWeights = USUAL,
    prefix_blocks: Blocks = (),
) -> SlotRequest:
    """Return what a job asks of the deployment's pool, where a token of a prompt has so many
    bytes."""
    engine_request, prompt_bytes = inference.engine_request, inference.prompt_bytes
    return SlotRequest(
        organization_id=principal.organization_id,
        weight=principal.organization.weight,
        is_paying=principal.organization.is_paying,
        tier=inference.tier,
        feature=engine_request.feature,
        sequences=inference.sequences,
        input_tokens=1 + int(prompt_bytes / token_bytes),
        prompt_bytes=prompt_bytes,
        output_tokens_max=engine_request.output_tokens_max * engine_request.choices,
        rates=rates,
        seconds_max=deployment.timeouts.queue_seconds,
        prefix_blocks=prefix_blocks,
    )


def _not_ready(pools: list[Pool]) -> ServiceUnavailable:
    """Return the error where no deployment is ready."""
    loading = [pool for pool in pools if pool.is_loading]
    if not loading:
        return model_unavailable()
    known = [each for pool in loading if (each := pool.ready_in_seconds) is not None]
    return model_loading(min(known, default=None))
