"""The caller's rate limits on the way of a request: before its body, with it, and in its reply."""

from collections.abc import Callable, Sequence
from datetime import datetime

from serving.gateway.auth import Principal
from serving.gateway.dialects.base import Envelope, InferenceRequest
from serving.gateway.error_mapping import rate_limited
from serving.gateway.errors import RateLimited
from serving.gateway.http.response import HttpResponse
from serving.limits.gcra import LimitStatus
from serving.limits.limiter import (
    NOTHING_MADE,
    RateLimiter,
    RateLimitExceeded,
    RateReservation,
    RequestSize,
)
from serving.limits.plans import RateLimitPlan, RateLimitPlans


class RateLimitEnforcer:
    """Asks the limiter, and says in the caller's language how it came out."""

    def __init__(
        self, limiter: RateLimiter, plans: RateLimitPlans, now: Callable[[], datetime]
    ) -> None:
        self._limiter = limiter
        self._plans = plans
        self._now = now

    def plan_of(self, principal: Principal) -> RateLimitPlan | None:
        """Return what limits a caller; None where nothing does."""
        return self._plans.plan(principal.key, principal.project, principal.organization)

    def check(self, response: HttpResponse, envelope: Envelope, plan: RateLimitPlan) -> None:
        """Refuse at once who has no request left; else have the answer tell how limits stand.

        Raises RateLimited.
        """
        self._write_headers(response, envelope, lambda: self._limiter.known_statuses(plan))
        try:
            self._limiter.check_early(plan)
        except RateLimitExceeded as exceeded:
            raise self._refused(response, envelope, exceeded) from None

    def count(self, plan: RateLimitPlan) -> None:
        """Take a request that asks for nothing that could be reserved; nobody waits for it."""
        self._limiter.count(plan)

    async def reserve(
        self,
        response: HttpResponse,
        plan: RateLimitPlan,
        key_id: str,
        inference: InferenceRequest,
        *,
        makes: bool = True,
    ) -> RateReservation | None:
        """Take a request, a place and what a request is expected to take of tokens, unless it
        `makes` nothing; None where nothing limits it. Raises RateLimited."""
        envelope = inference.dialect
        size = (
            RequestSize(inference.body_bytes, inference.output_tokens_max)
            if makes
            else NOTHING_MADE
        )
        model_id = inference.model.model_id
        try:
            reserved = await self._limiter.reserve(plan, key_id, model_id, size)
        except RateLimitExceeded as exceeded:
            raise self._refused(response, envelope, exceeded) from None
        if reserved is not None and makes:
            standings = reserved.statuses
            self._write_headers(response, envelope, lambda: standings)
        return reserved

    def _write_headers(
        self,
        response: HttpResponse,
        envelope: Envelope,
        standings: Callable[[], Sequence[LimitStatus]],
    ) -> None:
        response.limit_headers = lambda: envelope.limit_headers(standings(), self._now())

    def _refused(
        self, response: HttpResponse, envelope: Envelope, exceeded: RateLimitExceeded
    ) -> RateLimited:
        standings = exceeded.statuses  # not the error, which knows who raised it
        self._write_headers(response, envelope, lambda: standings)
        return rate_limited(exceeded.violation, self._now())
