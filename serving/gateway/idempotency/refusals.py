"""What is told of a request whose idempotency key keeps it from being worked on."""

from serving.contract.idempotency import CLAIMS_MAX, HOURS_KEPT, KEPT_BYTES_MAX, ClaimStorageFull
from serving.gateway.errors import ApiError, BadRequest, Unavailable
from serving.gateway.idempotency.wish import HEADER

USELESS = (b"x-should-retry", b"false")
MEGABYTE = 1024 * 1024


class KeyConflict(ApiError):
    """409: the key is another request's, or its answer is not to be had (yet)."""

    status = 409
    kind = "idempotency_error"


class TooManyKeys(ApiError):
    """429: the organization's room for keys is used up."""

    status = 429
    kind = "idempotency_error"


def not_taken() -> BadRequest:
    """Return the error where the organization has not turned idempotency keys on."""
    message = (
        f"The header '{HEADER}' is not taken: your organization keeps no answers. An owner or admin"
        " can turn it on in the console under Settings; until then leave the header out."
    )
    return BadRequest(message, code="idempotency_not_enabled", param=HEADER)


def other_request() -> KeyConflict:
    """Return the error for a key that came with another body, or for another route."""
    message = (
        f"The header '{HEADER}' names a key that came with another request within the last"
        f" {HOURS_KEPT} hours. Use a new key for each request, and the same body with each key."
    )
    return KeyConflict(message, code="idempotency_conflict", param=HEADER, headers=[USELESS])


def still_running() -> KeyConflict:
    """Return the error for a key that another gateway works on."""
    message = f"The first request with this '{HEADER}' is still running. Ask again for its answer."
    later = (b"retry-after", b"1")
    return KeyConflict(message, code="idempotency_conflict", param=HEADER, headers=[later])


def answer_lost() -> KeyConflict:
    """Return the error for a key whose request was answered, and the answer is not here."""
    message = (
        f"The request with this '{HEADER}' was answered and charged, and its answer was too long"
        " to be kept, or was erased. Use a new key to ask anew."
    )
    return KeyConflict(message, code="idempotency_answer_lost", param=HEADER, headers=[USELESS])


def no_room(full: ClaimStorageFull) -> TooManyKeys:
    """Return the error for an organization that keeps as much as it may."""
    message = (
        f"Your organization has {full.claims:,} idempotency keys with"
        f" {full.kept_bytes / MEGABYTE:,.0f} MB of answers; {CLAIMS_MAX:,} keys and"
        f" {KEPT_BYTES_MAX // MEGABYTE} MB at most. Each is forgotten after {HOURS_KEPT} hours."
    )
    later = (b"retry-after", b"600")
    headers = [later, USELESS]
    return TooManyKeys(message, code="idempotency_storage_full", param=HEADER, headers=headers)


def unavailable() -> Unavailable:
    """Return the error while nobody can tell whether the key was used: nothing was done."""
    message = (
        f"Requests with '{HEADER}' cannot be taken at the moment; nothing was done. Try again."
    )
    return Unavailable(message, code="idempotency_unavailable", retry_after_seconds=2)


def came_to_nothing() -> Unavailable:
    """Return the error for who joined an answer that broke off."""
    message = f"The request with this '{HEADER}' that yours joined broke off. Try again."
    return Unavailable(message, code="idempotency_unavailable")
