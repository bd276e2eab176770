"""The caller's rate limits on the way of a request: before its body, with it, and in its reply."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from serving.contract.limits import Measure
from serving.gateway.conversation import Conversation
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.errors import RateLimited
from serving.gateway.principals import Principal
from serving.limits.gcra import LimitStatus, LimitViolation
from serving.limits.limiter import (
    NOTHING_MADE,
    RateLimiter,
    RateLimitExceeded,
    RateReservation,
    RequestSize,
)
from serving.limits.plans import Owner, RateLimitPlan, RateLimitPlans

WHOSE: dict[Owner, str] = {
    "organization": "organization",
    "project": "project",
    "key": "API key",
}
OF_WHAT: dict[Measure, str] = {
    "requests": "requests per minute",
    "input_tokens": "input tokens per minute, cached ones not counted",
    "output_tokens": "output tokens per minute",
    "concurrent": "requests at once",
}


class Rates:
    """Asks the limiter, and says in the caller's language how it came out."""

    def __init__(
        self, limiter: RateLimiter, plans: RateLimitPlans, now: Callable[[], datetime]
    ) -> None:
        self._limiter = limiter
        self._plans = plans
        self._now = now

    def check(self, conversation: Conversation, principal: Principal) -> None:
        """Refuse at once who has no request left; else have the reply tell how limits stand.

        Raises RateLimited.
        """
        plan = self._plan(principal)
        if plan is None:
            return
        self._tell(conversation, lambda: self._limiter.known(plan))
        try:
            self._limiter.check_early(plan)
        except RateLimitExceeded as exceeded:
            raise self._refused(conversation, exceeded) from None

    def count(self, principal: Principal) -> None:
        """Take a request that asks for nothing that could be reserved; nobody waits for it."""
        plan = self._plan(principal)
        if plan is not None:
            self._limiter.count(plan)

    async def reserve(
        self,
        conversation: Conversation,
        principal: Principal,
        job: InferenceRequest,
        *,
        makes: bool = True,
    ) -> RateReservation | None:
        """Take a request, a place and what a job is expected to take of tokens, unless it `makes`
        nothing; None where nothing limits it. Raises RateLimited."""
        plan = self._plan(principal)
        if plan is None:
            return None
        size = RequestSize(job.body_bytes, job.output_tokens_max) if makes else NOTHING_MADE
        key_id, model_id = principal.key.key_id, job.model.model_id
        try:
            reserved = await self._limiter.reserve(plan, key_id, model_id, size)
        except RateLimitExceeded as exceeded:
            raise self._refused(conversation, exceeded) from None
        if reserved is not None and makes:
            standings = reserved.standings
            self._tell(conversation, lambda: standings)
        return reserved

    def _plan(self, principal: Principal) -> RateLimitPlan | None:
        return self._plans.plan(principal.key, principal.project, principal.organization)

    def _tell(
        self, conversation: Conversation, standings: Callable[[], Sequence[LimitStatus]]
    ) -> None:
        envelope = conversation.envelope
        conversation.limit_headers = lambda: envelope.limit_headers(standings(), self._now())

    def _refused(self, conversation: Conversation, exceeded: RateLimitExceeded) -> RateLimited:
        standings = exceeded.standings  # not the error, which knows who raised it
        self._tell(conversation, lambda: standings)
        return refusal(exceeded.excess, self._now())


def refusal(excess: LimitViolation, now: datetime) -> RateLimited:
    """Return the error for a limit that a request would break: which, whose, and until when."""
    check, wait_seconds = excess.check, excess.wait / 1e6
    whose = f"your {WHOSE[check.owner]} ({check.owner_id})"
    if check.model_id is not None:
        whose += f" on the model {check.model_id}"
    if check.measure == "concurrent":
        figures, when = f"{excess.used} of {check.limit} run", "Please retry when one has ended."
    else:
        figures = f"limit {check.limit}, used {excess.used}, wanted {excess.wanted}"
        when = f"Please retry in {wait_seconds:.3f} seconds."
    metadata = {
        "scope": check.owner,
        "scope_id": check.owner_id,
        "model_id": check.model_id,
        "measure": check.measure,
        "limit": check.limit,
        "current": excess.used,
        "wanted": excess.wanted,
        "resets_at": now + timedelta(seconds=wait_seconds),
    }
    return RateLimited(
        f"Rate limit of {whose}: {OF_WHAT[check.measure]}: {figures}. {when}",
        of_tokens=check.measure in ("input_tokens", "output_tokens"),
        wait_seconds=wait_seconds,
        metadata=metadata,
    )
