"""Tells control about requests that were refused or failed, so that customers can see why."""

import asyncio
from collections import Counter

import structlog

from serving.contract.codec import storable
from serving.contract.failed_requests import (
    FAILED_REQUESTS_MAX,
    MESSAGE_CHARACTERS_MAX,
    OF_ORGANIZATION_MAX,
    PARAM_CHARACTERS_MAX,
    FailedRequest,
    FailedRequests,
    StoredCount,
)
from serving.contract.ids import moment_of
from serving.gateway.auth import ApiRequest, Principal
from serving.gateway.errors import ApiError
from serving.internal_http import InternalCallError
from serving.usage.control_api import ControlApi

log = structlog.get_logger(__name__)

SEND_SECONDS = 2.0
CALL_SECONDS = 10.0
NOT_STORED = (None, 503)
"""The status of calls that are worth repeating: control does not answer, or not yet."""


class FailedRequestLog:
    """The failed requests since control last heard of them: a bounded number of each organization.
    The others are counted."""

    def __init__(self, api: ControlApi, gateway_id: str) -> None:
        self._api = api
        self._gateway_id = gateway_id
        self._rows: list[FailedRequest] = []
        self._counts: Counter[str] = Counter()
        """Of `_rows`, by organization."""
        self._skipped = 0
        self._is_heard = True

    def add(self, request_id: str, http: ApiRequest, error: ApiError) -> None:
        """Keep why a request failed; nothing of one whose key is unknown."""
        principal = http.principal
        if principal is None:
            return
        organization_id = principal.organization_id
        is_full = len(self._rows) >= FAILED_REQUESTS_MAX
        if is_full or self._counts[organization_id] >= OF_ORGANIZATION_MAX:
            self._skipped += 1
            return
        self._counts[organization_id] += 1
        self._rows.append(_failed_request(request_id, http, principal, error))

    async def run(self) -> None:
        """Send for ever; what is not heard is sent again, unless control refused it."""
        while True:
            await asyncio.sleep(SEND_SECONDS)
            try:
                await self.send()
                self._is_heard = True
            except InternalCallError as error:
                if self._is_heard:
                    log.warning("failed_requests_not_heard", error=str(error))
                self._is_heard = False

    async def send(self) -> None:
        """Send what waits, and forget it once it is heard or refused. Raises InternalCallError."""
        rows, skipped = tuple(self._rows), self._skipped
        if not rows and not skipped:
            return
        record = FailedRequests(self._gateway_id, rows, skipped)
        try:
            await self._api.post("failed-requests", record, StoredCount, CALL_SECONDS)
        except InternalCallError as error:
            if error.status not in NOT_STORED:
                self._forget(len(rows))
                self._skipped += len(rows)
            raise
        self._forget(len(rows))
        self._skipped -= skipped

    def _forget(self, count: int) -> None:
        del self._rows[:count]
        self._counts = Counter(row.organization_id for row in self._rows)


def _failed_request(
    request_id: str, http: ApiRequest, principal: Principal, error: ApiError
) -> FailedRequest:
    message = error.message.replace(error.quoted, "", 1) if error.quoted else error.message
    return FailedRequest(
        request_id=request_id,
        organization_id=principal.organization_id,
        project_id=principal.project.project_id,
        key_id=principal.key.key_id,
        received_at=moment_of(request_id),
        endpoint=storable(http.path)[:PARAM_CHARACTERS_MAX],
        status=error.status,
        message=storable(message)[:MESSAGE_CHARACTERS_MAX],
        code=storable(error.code or "")[:PARAM_CHARACTERS_MAX],
        param=storable(error.param or "")[:PARAM_CHARACTERS_MAX],
        variant_id=http.variant_id,
        client_request_id=http.client_request_id or "",
    )
