"""What a client is told that got no slot: come back when there should be one."""

import math

from serving.gateway.admission import model_loading, model_unavailable
from serving.gateway.errors import ApiError, TooManyWaiting, Unavailable
from serving.pool import slot_request

RETRY_SECONDS_MAX = 60


def no_slot(full: slot_request.PoolError) -> ApiError:
    """Return the error for a request that got no slot."""
    if isinstance(full, slot_request.NoReadyReplica):
        return model_loading(full.seconds) if full.is_coming else model_unavailable()
    if isinstance(full, slot_request.RequestQuarantined):
        return _quarantined(full.seconds)
    if isinstance(full, slot_request.TenantQueueFull):
        return TooManyWaiting(_seconds(full))
    return busy(_seconds(full) if isinstance(full, slot_request.PoolOverloaded) else 1)


def busy(retry_after_seconds: int = 1) -> ApiError:
    """Return the error for a model that has more to do than it can."""
    message = "The model is busy. Please try again."
    return Unavailable(
        message, code="server_is_overloaded", retry_after_seconds=retry_after_seconds
    )


def _quarantined(seconds: float) -> ApiError:
    message = "Requests like this one made the model fail several times. Please try again later."
    return Unavailable(message, code="request_quarantined", retry_after_seconds=math.ceil(seconds))


def _seconds(full: slot_request.PoolOverloaded) -> int:
    return min(RETRY_SECONDS_MAX, max(1, math.ceil(full.seconds)))
