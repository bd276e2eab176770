"""Failures of pool, leases, limits and engine, as what a client is told."""

import math
from datetime import datetime, timedelta
from math import ceil

from serving.contract.budget import BudgetKind, Period, kind_of, limited_id, period_of
from serving.contract.limits import Measure
from serving.contract.money import format_dollars
from serving.contract.usage import Outcome
from serving.engine.errors import EngineError, ReplicaOverloaded, RequestRejected
from serving.gateway.cancel_scope import RequestCancelled
from serving.gateway.dialects.base import InferenceRequest
from serving.gateway.errors import (
    ApiError,
    DeadlineExceeded,
    InsufficientQuota,
    RateLimited,
    ServiceUnavailable,
    TooManyQueuedRequests,
)
from serving.gateway.http.write_buffer import ClientTooSlow
from serving.limits.gcra import LimitViolation
from serving.limits.plans import Owner
from serving.pool import slot_request
from serving.pool.slot_request import PoolError
from serving.usage.leases import (
    BudgetExceeded,
)

RETRY_SECONDS_MAX = 60


def no_slot(full: slot_request.PoolError) -> ApiError:
    """Return the error for a request that got no slot."""
    if isinstance(full, slot_request.NoReadyReplica):
        return model_loading(full.seconds) if full.is_coming else model_unavailable()
    if isinstance(full, slot_request.RequestQuarantined):
        return _quarantined(full.seconds)
    if isinstance(full, slot_request.TenantQueueFull):
        return TooManyQueuedRequests(_seconds(full))
    return queue_full(_seconds(full) if isinstance(full, slot_request.PoolOverloaded) else 1)


def queue_full(retry_after_seconds: int = 1) -> ApiError:
    """Return the error for a model that has more to do than it can."""
    message = "The model is busy. Please try again."
    return ServiceUnavailable(
        message, code="server_is_overloaded", retry_after_seconds=retry_after_seconds
    )


def _quarantined(seconds: float) -> ApiError:
    message = "Requests like this one made the model fail several times. Please try again later."
    return ServiceUnavailable(
        message, code="request_quarantined", retry_after_seconds=math.ceil(seconds)
    )


def _seconds(full: slot_request.PoolOverloaded) -> int:
    return min(RETRY_SECONDS_MAX, max(1, math.ceil(full.seconds)))


MODEL_RETRY_SECONDS = 5
"""Where nobody knows when a model will run."""


_OF_WHOM: dict[BudgetKind, str] = {
    "organization": "organization's",
    "project": "project's",
    "key": "API key's",
}


_EVERY: dict[Period, str] = {"month": "monthly", "week": "weekly", "day": "daily"}


def insufficient_quota(refused: BudgetExceeded, *, cost_nanos: int) -> InsufficientQuota:
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
    return InsufficientQuota(message, refused.code, metadata)


def too_many_in_progress(*, is_own: bool) -> ApiError:
    """Return the error for a request that may not keep its connection beside so many others, of its
    own organization or of all. The connection closes, which makes room for another."""
    error: ApiError = TooManyQueuedRequests(1, "requests are in progress")
    if not is_own:
        message = "Too many requests are in progress. Please try again."
        error = ServiceUnavailable(message, code="server_is_overloaded")
    error.headers = [*error.headers, (b"connection", b"close")]
    return error


def usage_unavailable() -> ServiceUnavailable:
    """Return the error for work that could not be metered or paid for."""
    return ServiceUnavailable("Usage cannot be recorded at the moment.", code="usage_unavailable")


def leases_recalled() -> ServiceUnavailable:
    """Return the error for money that other gateways are giving back: a retry finds it."""
    return ServiceUnavailable(
        "Your budget is in use elsewhere. Please retry.", code="usage_unavailable"
    )


def money_held() -> ServiceUnavailable:
    """Return the error for money that requests under way hold: a retry finds what they leave."""
    message = "Your budget is held by your requests under way. Please retry, or lower max_tokens."
    return ServiceUnavailable(message, code="usage_unavailable")


def model_unavailable() -> ServiceUnavailable:
    """Return the error for a model that runs nowhere right now."""
    message = "The model is not running at the moment."
    return ServiceUnavailable(
        message, code="model_unavailable", retry_after_seconds=MODEL_RETRY_SECONDS
    )


def model_loading(seconds: float | None = None) -> ServiceUnavailable:
    """Return the error for a model whose replica is loading, and should be ready in so many
    seconds; None: nobody knows. One that takes longer than the last time may be ready any moment.
    """
    message = "The model is loading."
    if seconds is not None and seconds > 0:
        message = f"The model is loading: it should be ready in about {ceil(seconds)} s."
    retry_after = ceil(seconds) if seconds else MODEL_RETRY_SECONDS
    return ServiceUnavailable(message, code="model_loading", retry_after_seconds=retry_after)


def gateway_restarting() -> ApiError:
    message = "This gateway is being restarted. Please try again."
    return ServiceUnavailable(message, code="server_is_overloaded")


def engine_failed() -> ApiError:
    return ServiceUnavailable(
        "The model failed to answer. Please try again.", code="model_unavailable"
    )


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


def rate_limited(excess: LimitViolation, now: datetime) -> RateLimited:
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


STEP_ERRORS = (RequestCancelled, ClientTooSlow, PoolError, EngineError)
"""What may end the work on an admitted request."""


def outcome_of(error: Exception) -> Outcome:
    """Return how a request ended that one of `STEP_ERRORS` ended."""
    if isinstance(error, RequestCancelled):
        return "client_cancelled" if error.reason == "client_gone" else "timed_out"
    if isinstance(error, ClientTooSlow):
        return "client_cancelled"
    return "refused_by_engine" if isinstance(error, RequestRejected) else "engine_failed"


def raise_api_error(error: Exception, inference: InferenceRequest) -> None:
    """Raise what the client is told of one of `STEP_ERRORS`, as an ApiError; nothing where it has
    left."""
    match error:
        case ClientTooSlow() | RequestCancelled(reason="client_gone"):
            return
        case RequestCancelled(reason="gateway_stopping"):
            raise gateway_restarting() from None
        case RequestCancelled():
            message = "The model took too long to answer."
            raise DeadlineExceeded(message, code="timeout") from None
        case RequestRejected():
            raise inference.dialect.rejection(error, inference) from None
        case PoolError():
            raise no_slot(error) from None
        case ReplicaOverloaded():
            raise queue_full() from None
        case _:
            raise engine_failed() from None
