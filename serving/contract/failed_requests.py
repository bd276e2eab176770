"""Requests that were refused or failed, with the reason and without content.

`POST /internal/v1/failed-requests` every few seconds. They are for people to read, not for the
books: a gateway keeps a bounded number in memory and loses them when it dies.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from serving.contract.units import At, Count, Id

OF_ORGANIZATION_MAX = 50
"""The most that a gateway sends of one organization at a time; it counts the others."""
FAILED_REQUESTS_MAX = 1_000
"""The most that a gateway sends at a time."""
MESSAGE_CHARACTERS_MAX = 500
PARAM_CHARACTERS_MAX = 200

Text = Annotated[str, Meta(max_length=MESSAGE_CHARACTERS_MAX)]
Param = Annotated[str, Meta(max_length=PARAM_CHARACTERS_MAX)]
Status = Annotated[int, Meta(ge=400, le=599)]
RequestId = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]


class FailedRequest(msgspec.Struct, frozen=True):
    """One request of a known key. `status`, `code`, `param` and `message` are what the client was
    told, without what the message repeated of its request except for the names of fields.
    `variant_id` is None if the request did not name a model that the key may use."""

    request_id: RequestId
    organization_id: Id
    project_id: Id
    key_id: Id
    received_at: At
    endpoint: Param
    status: Status
    message: Text
    code: Param = ""
    param: Param = ""
    variant_id: Id | None = None
    client_request_id: Param = ""


class FailedRequests(msgspec.Struct, frozen=True):
    """What failed since the last call; `skipped` is how many more there were."""

    gateway_id: Id
    failed_requests: Annotated[tuple[FailedRequest, ...], Meta(max_length=FAILED_REQUESTS_MAX)]
    skipped: Count = 0


class StoredCount(msgspec.Struct, frozen=True):
    """How many of them are stored now; those that were stored before count too."""

    stored: Count
