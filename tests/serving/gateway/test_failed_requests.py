"""A gateway tells control why requests failed: without content, in bounded numbers."""

from typing import Any, cast

import msgspec
import pytest

from serving.contract.failed_requests import (
    FAILED_REQUESTS_MAX,
    OF_ORGANIZATION_MAX,
    FailedRequests,
    StoredCount,
)
from serving.contract.ids import new_id
from serving.gateway import failed_requests
from serving.gateway.auth import ApiRequest, Principal
from serving.gateway.errors import NotFound
from serving.gateway.failed_requests import FailedRequestLog
from serving.internal_http import InternalCallError
from serving.usage.control_api import ControlApi
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.waiting import eventually

CHAT = "/v1/chat/completions"
BODY = {"model": "demo", "messages": MESSAGES, "max_tokens": 100}
SECRET = "a secret of the client's"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_requests, "SEND_SECONDS", 0.05)


@pytest.mark.parametrize(
    ("body", "wanted", "has_model"),
    [
        (BODY | {"temperature": SECRET}, (400, "invalid_value", "temperature"), False),
        (BODY | {"max_tokens": 10**6}, (400, "context_length_exceeded", "max_tokens"), True),
        (BODY | {"unheard_of": SECRET}, (400, "unknown_parameter", "unheard_of"), False),
        (BODY | {"unheard\0of": SECRET}, (400, "unknown_parameter", "unheardof"), False),
        (BODY | {"model": SECRET}, (404, "model_not_found", "model"), False),
        (b"no JSON, " + SECRET.encode(), (400, "invalid_json", ""), False),
    ],
)
async def test_control_hears_what_the_client_was_told_and_no_content(
    stack: Stack, body: Any, wanted: tuple[int, str, str], has_model: bool
) -> None:
    async with stack.post(CHAT, body) as reply:
        assert reply.status == wanted[0]
    await eventually(lambda: bool(stack.control.failed_requests))
    [told] = stack.control.failed_requests
    assert (told.status, told.code, told.param) == wanted
    assert told.request_id == reply.headers["x-request-id"]
    assert (told.organization_id, told.project_id, told.key_id) == ("org_a", "proj_a", "key_a")
    assert (told.variant_id is not None) is has_model
    assert told.message
    assert SECRET.encode() not in msgspec.json.encode(told)


async def test_a_refusal_for_money_keeps_its_figures(stack: Stack) -> None:
    stack.control.billing.limits["balance:org_a"] = 50_000
    async with stack.post(CHAT, BODY) as reply:
        error = (await reply.json())["error"]
    await eventually(lambda: bool(stack.control.failed_requests))
    [told] = stack.control.failed_requests
    assert (told.code, told.message) == (error["code"], error["message"])


async def test_nothing_is_told_of_an_unknown_key(stack: Stack) -> None:
    headers = {"authorization": "Bearer sk-pen-" + "x" * 40}
    async with stack.post(CHAT, BODY, headers=headers) as reply:
        assert reply.status == 401
    async with stack.post(CHAT, BODY | {"model": "nothing"}) as reply:
        assert reply.status == 404
    await eventually(lambda: bool(stack.control.failed_requests))
    assert [told.status for told in stack.control.failed_requests] == [404]


async def test_a_gateway_leaves_though_its_failed_requests_are_refused(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> None:
        raise InternalCallError("no", 500)

    await eventually(lambda: bool(stack.control.gateways))
    monkeypatch.setattr(stack.gateway.failed_requests, "send", refused)
    await stack.stop_gateway()
    assert not stack.control.gateways
    await stack.start_gateway()


class Control:
    """What a log tells control, which may be away."""

    def __init__(self) -> None:
        self.failure: InternalCallError | None = None
        self.heard: list[FailedRequests] = []

    async def post(self, name: str, record: FailedRequests, kind: Any, seconds: float) -> Any:
        if self.failure is not None:
            raise self.failure
        self.heard.append(record)
        return StoredCount(len(record.failed_requests))


class Asked:
    """What a log needs of a request."""

    path, variant_id, client_request_id = CHAT, None, None

    def __init__(self, tenant: str) -> None:
        known = catalog.tenant(tenant)
        records = (known.key, known.project, known.organization)
        self.principal = Principal(*records, networks=None, cache_salt="", budget_ids=())


def fill(log: FailedRequestLog, tenant: str, count: int) -> None:
    for _ in range(count):
        log.add(new_id(), cast(ApiRequest, Asked(tenant)), NotFound("nothing here"))


async def test_a_flood_of_one_leaves_room_for_another_and_is_counted() -> None:
    control = Control()
    log = FailedRequestLog(cast(ControlApi, control), "gw_1")
    fill(log, "a", OF_ORGANIZATION_MAX + 7)
    fill(log, "b", 1)
    await log.send()
    await log.send()
    [heard] = control.heard
    whose = [row.organization_id for row in heard.failed_requests]
    assert (whose.count("org_a"), whose.count("org_b")) == (OF_ORGANIZATION_MAX, 1)
    assert heard.skipped == 7


async def test_what_control_did_not_hear_is_told_later_within_the_same_bounds() -> None:
    control = Control()
    log = FailedRequestLog(cast(ControlApi, control), "gw_1")
    control.failure = InternalCallError("away")
    fill(log, "a", 3)
    with pytest.raises(InternalCallError):
        await log.send()
    for tenant in range(FAILED_REQUESTS_MAX // OF_ORGANIZATION_MAX + 1):
        fill(log, f"t{tenant}", OF_ORGANIZATION_MAX)
    control.failure = None
    await log.send()
    [heard] = control.heard
    assert len(heard.failed_requests) == FAILED_REQUESTS_MAX
    assert heard.failed_requests[0].organization_id == "org_a"
    assert heard.skipped == 3 + OF_ORGANIZATION_MAX


@pytest.mark.parametrize(
    ("status", "wanted"), [(None, (2, 0)), (503, (2, 0)), (500, (0, 2)), (400, (0, 2))]
)
async def test_what_control_refuses_is_counted_and_not_sent_again(
    status: int | None, wanted: tuple[int, int]
) -> None:
    control = Control()
    log = FailedRequestLog(cast(ControlApi, control), "gw_1")
    control.failure = InternalCallError("no", status)
    fill(log, "a", 2)
    with pytest.raises(InternalCallError):
        await log.send()
    control.failure = None
    await log.send()
    [heard] = control.heard
    assert (len(heard.failed_requests), heard.skipped) == wanted
