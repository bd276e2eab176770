"""Admission: the yes or no before any work, with the money for the worst case set aside."""

from collections.abc import Callable
from datetime import datetime
from math import ceil

import msgspec

from serving.contract.budget import BudgetKind, Period, kind_of, limited_id, period_of
from serving.contract.money import format_dollars
from serving.contract.records import DeploymentRecord
from serving.contract.units import Tier
from serving.engine.errors import RequestRejected
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.dialects.validation import invalid
from serving.gateway.directory import Directory
from serving.gateway.errors import NoMoney, Unavailable
from serving.gateway.grammars import GrammarCheck
from serving.gateway.places import Place, blocks_of_prompt, bound_of, in_order
from serving.gateway.price_list import Schedule
from serving.gateway.principals import Principal
from serving.pool.pool import Pool
from serving.pool.prefix_history import Blocks
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

RETRY_SECONDS = 5
"""Where nobody knows when a model will run."""
_OF_WHOM: dict[BudgetKind, str] = {
    "organization": "organization's",
    "project": "project's",
    "key": "API key's",
}
_EVERY: dict[Period, str] = {"month": "monthly", "week": "weekly", "day": "daily"}


class Admitted(msgspec.Struct, frozen=True):
    """Where the job goes, and after that where it may run too, by what ticket, at what prices, with
    what money held, for a prompt of how many tokens at most."""

    places: tuple[Place, ...]
    slot_request: SlotRequest
    schedule: Schedule
    hold: BudgetReservation
    input_tokens_max: int
    cache_salt: str

    @property
    def deployment(self) -> DeploymentRecord:
        """Where it goes."""
        return self.places[0][0]


class Admission:
    """Asks the directory where, and the lease_manager whether."""

    def __init__(
        self,
        directory: Directory,
        lease_manager: LeaseManager,
        journal: Journal,
        clock: GatewayClock,
        grammars: GrammarCheck,
    ) -> None:
        self._directory = directory
        self._lease_manager = lease_manager
        self._journal = journal
        self._clock = clock
        self._grammars = grammars

    async def admit(
        self,
        principal: Principal,
        job: InferenceRequest,
        now: datetime,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Admitted:
        """Hold the worst case on every budget of the chain, of a request received at `now`. Money
        that other requests hold is waited for as long as a slot, while the answer `is_wanted`.

        Raises NoMoney, Unavailable, or BadRequest for what no engine here can do, and for a tier
        that the model is not sold in.
        """
        if not self._journal.healthy:
            raise usage_unavailable()
        able = self.places(job, principal.organization_id)
        blocks = blocks_of_prompt(principal, job, [pool for _, pool in able])
        places = in_order(able, job, blocks)
        deployment, pool = places[0]
        if job.work.grammars is not None:
            await self._grammars.check(principal.organization_id, deployment, job.work.grammars)
        schedule = self._schedule(principal, job, now)
        input_tokens_max = job.input_tokens_max(bound_of(places))
        worst = job.worst_case_nanos(schedule, input_tokens_max)
        try:
            hold = await self._lease_manager.hold(
                *(principal.budget_ids, worst, now),
                patience_seconds=deployment.timeouts.queue_seconds,
                is_wanted=is_wanted,
            )
        except BudgetExceeded as refused:
            raise no_money(refused, cost_nanos=worst) from None
        except LeasesRecalled:
            raise money_recalled() from None
        except MoneyHeld:
            raise money_held() from None
        except ReservationUnavailable:
            raise usage_unavailable() from None
        if self._clock.is_yet_to_come(now):
            hold.void()
            raise usage_unavailable()
        rates = TokenWeights.of(schedule[0])
        slot_request = slot_request_of(
            principal,
            job,
            deployment,
            token_bytes=pool.queue.token_bytes,
            rates=rates,
            blocks=blocks,
        )
        return Admitted(
            places, slot_request, schedule, hold, input_tokens_max, principal.cache_salt
        )

    def _schedule(self, principal: Principal, job: InferenceRequest, now: datetime) -> Schedule:
        variant_id, organization_id = job.model.variant_id, principal.organization_id
        self._check_tier(principal, job.tier)
        schedule = self._directory.schedule(variant_id, organization_id, now, job.tier)
        if schedule is not None:
            return schedule
        if job.tier == "default":
            raise model_unavailable()
        raise invalid("service_tier", f"this model is not offered in the tier '{job.tier}'")

    def _check_tier(self, principal: Principal, tier: Tier) -> None:
        tier_id = principal.organization.limit_tier_id
        record = None if tier_id is None else self._directory.limit_tier(tier_id)
        if record is None or record.service_tiers is None or tier in record.service_tiers:
            return
        known = ", ".join(record.service_tiers)
        wanted = f"'{tier}' is not in your organization's usage tier, which has: {known}"
        raise invalid("service_tier", wanted)

    def places(self, job: InferenceRequest, organization_id: str) -> list[Place]:
        """Return the deployments that are ready, or soon will be, and able.

        Raises Unavailable, or BadRequest naming what none of them is able to.
        """
        places = [
            (deployment, self._directory.pools[deployment.deployment_id])
            for deployment in self._directory.deployments(job.model.variant_id, organization_id)
        ]
        ready = [
            (deployment, pool)
            for deployment, pool in places
            if pool.is_open and _may_serve(deployment, pool)
        ]
        if not ready:
            raise _not_ready([pool for _, pool in places if pool.is_loading])
        needs = job.work.needs
        able = [place for place in ready if needs.keys() <= place[1].capabilities]
        if not able:
            lacking = needs.keys() - ready[0][1].capabilities
            reason = next(reason for feature, reason in needs.items() if feature in lacking)
            raise job.dialect.refusal(RequestRejected(reason), job)
        # Nobody is woken, or waited for, where another is there.
        return [place for place in able if place[1].has_ready_replica] or able


def slot_request_of(
    principal: Principal,
    job: InferenceRequest,
    deployment: DeploymentRecord,
    *,
    token_bytes: float,
    rates: TokenWeights = USUAL,
    blocks: Blocks = (),
) -> SlotRequest:
    """Return what a job asks of the deployment's pool, where a token of a prompt has so many
    bytes."""
    work, prompt_bytes = job.work, job.prompt_bytes
    return SlotRequest(
        organization_id=principal.organization_id,
        weight=principal.organization.weight,
        tier=job.tier,
        feature=work.feature,
        sequences=job.width,
        input_tokens=1 + int(prompt_bytes / token_bytes),
        prompt_bytes=prompt_bytes,
        output_tokens_max=work.output_tokens_max * work.choices,
        rates=rates,
        seconds_max=deployment.timeouts.queue_seconds,
        blocks=blocks,
    )


def _may_serve(deployment: DeploymentRecord, pool: Pool) -> bool:
    """Tell whether organizations that share the deployment are kept apart in it (I7)."""
    return deployment.dedicated_to is not None or pool.is_isolating


def no_money(refused: BudgetExceeded, *, cost_nanos: int) -> NoMoney:
    """Return the error for a budget that doesn't cover a request: which, of how much, what is left
    of it, and when it renews. It is called used up only where nothing is left."""
    kind = kind_of(refused.budget_id) or "balance"
    left_nanos, limit_nanos = max(refused.available_nanos, 0), refused.limit_nanos
    if kind == "balance":
        limit_nanos = None
        budget, remedy = "credit balance", "Add credits under Billing."
    else:
        amount = "" if limit_nanos is None else f" of {format_dollars(limit_nanos)}"
        budget = f"{_OF_WHOM[kind]} {_EVERY[period_of(refused.budget_id)]} limit{amount}"
        remedy = f"It renews at {refused.ends_at:%Y-%m-%d %H:%M} UTC."
    budget, cost = f"your {budget} ({refused.budget_id})", format_dollars(cost_nanos)
    if left_nanos > 0 or refused.held_nanos:
        held = format_dollars(refused.held_nanos)
        beside = f", beside {held} held by requests in progress" if refused.held_nanos else ""
        message = (
            f"This request could cost {cost}, and {format_dollars(left_nanos)} is left of"
            f" {budget}{beside}. {remedy}"
        )
    else:
        message = f"Y{budget[1:]} is used up: this request could cost {cost}. {remedy}"
    metadata = {
        "scope": kind,
        "scope_id": limited_id(refused.budget_id),
        "measure": "nanos",
        "limit": limit_nanos,
        "left": left_nanos,
        "held": refused.held_nanos,
        "wanted": cost_nanos,
        "resets_at": refused.ends_at,
    }
    return NoMoney(message, refused.code, metadata)


def usage_unavailable() -> Unavailable:
    """Return the error for work that could not be metered or paid for."""
    return Unavailable("Usage cannot be recorded at the moment.", code="usage_unavailable")


def money_recalled() -> Unavailable:
    """Return the error for money that other gateways are giving back: a retry finds it."""
    return Unavailable("Your budget is in use elsewhere. Please retry.", code="usage_unavailable")


def money_held() -> Unavailable:
    """Return the error for money that requests under way hold: a retry finds what they leave."""
    message = "Your budget is held by your requests under way. Please retry, or lower max_tokens."
    return Unavailable(message, code="usage_unavailable")


def model_unavailable() -> Unavailable:
    """Return the error for a model that runs nowhere right now."""
    message = "The model is not running at the moment."
    return Unavailable(message, code="model_unavailable", retry_after_seconds=RETRY_SECONDS)


def model_loading(seconds: float | None = None) -> Unavailable:
    """Return the error for a model whose replica is loading, and should be ready in so many
    seconds; None: nobody knows. One that takes longer than the last time may be ready any moment.
    """
    message = "The model is loading."
    if seconds is not None and seconds > 0:
        message = f"The model is loading: it should be ready in about {ceil(seconds)} s."
    retry_after = ceil(seconds) if seconds else RETRY_SECONDS
    return Unavailable(message, code="model_loading", retry_after_seconds=retry_after)


def _not_ready(loading: list[Pool]) -> Unavailable:
    """Return the error where no deployment is ready, of which these load."""
    if not loading:
        return model_unavailable()
    known = [each for pool in loading if (each := pool.ready_in_seconds) is not None]
    return model_loading(min(known, default=None))
