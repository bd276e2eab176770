"""Idempotency keys: the gateway asks control before it works on a request that names one.

`POST /internal/v1/idempotency/claims` asks to be the one request of a key, `…/responses` keeps what
came of it, `…/endings` says how it ended. All may be repeated. Control keeps one answer for each
key. A request may complete only once its own is kept, and its answer is given again only once it is
known to have completed: so no key completes twice, and nobody is told an answer that nobody was
charged for. Digests are keyed hashes and answers are sealed by the gateway: control knows neither
keys nor content.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from serving.contract import SCHEMA
from serving.contract.units import Count, Id

HEADER = "Idempotency-Key"
HOURS_KEPT = 24
CLAIMS_MAX = 100_000
"""The most that an organization has at a time."""
KEPT_BYTES_MAX = 256 * 1024 * 1024
"""Of all sealed answers of an organization."""
SEALED_BYTES_MAX = 4 * 1024 * 1024
"""Of one; longer ones are not kept."""
ENDINGS_MAX = 1_000

EventId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Sealed = Annotated[bytes, Meta(max_length=SEALED_BYTES_MAX)]


class IdempotencyClaim(msgspec.Struct, frozen=True):
    """A request that wants to be the one of its key."""

    event_id: EventId
    gateway_id: Id
    organization_id: Id
    key_digest: Digest
    request_digest: Digest
    schema: int = SCHEMA


class ClaimGrant(msgspec.Struct, frozen=True, tag="claimed"):
    """It is the one, until it ends."""


class ClaimInProgress(msgspec.Struct, frozen=True, tag="running"):
    """Another request of the key is at work, or nobody knows yet how it ended."""


class ClaimReplay(msgspec.Struct, frozen=True, tag="answered"):
    """The key has its answer, of the completed request `event_id`; None where it could not be
    kept."""

    event_id: EventId
    sealed: Sealed | None


class ClaimConflict(msgspec.Struct, frozen=True, tag="other_request"):
    """The key is another request's."""


class ClaimStorageFull(msgspec.Struct, frozen=True, tag="no_room"):
    """The organization has as many keys, or bytes of answers, as may be kept."""

    claims: Count
    kept_bytes: Count


class ClaimDisabled(msgspec.Struct, frozen=True, tag="turned_off"):
    """The organization takes no idempotency keys."""


class ClaimClosed(msgspec.Struct, frozen=True, tag="ended"):
    """The request ended before its claim arrived."""


Verdict = (
    ClaimGrant
    | ClaimInProgress
    | ClaimReplay
    | ClaimConflict
    | ClaimStorageFull
    | ClaimDisabled
    | ClaimClosed
)


class ClaimReply(msgspec.Struct, frozen=True):
    """What became of a claim."""

    verdict: Verdict


class StoreResponse(msgspec.Struct, frozen=True):
    """A claim's answer; `sealed` of None where it is too long to be kept."""

    claim: IdempotencyClaim
    sealed: Sealed | None


class StoreResponseReply(msgspec.Struct, frozen=True):
    """Whether this claim's answer is the one of its key, so that it may complete."""

    is_kept: bool


class ClaimEnding(msgspec.Struct, frozen=True):
    """How a request ended, and whose it was: it completed, and its answer may be given again, or it
    did not, and the key is free."""

    organization_id: Id
    event_id: EventId
    is_completed: bool


class ClaimEndings(msgspec.Struct, frozen=True):
    """What a gateway knows to have ended, in this life or the one before."""

    endings: Annotated[tuple[ClaimEnding, ...], Meta(max_length=ENDINGS_MAX)]
    schema: int = SCHEMA


class ClaimEndingsReply(msgspec.Struct, frozen=True):
    """How many of them changed anything here."""

    changed: Count
