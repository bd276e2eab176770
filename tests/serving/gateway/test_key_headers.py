"""Every route takes a key in either header, and models are listed in the caller's language."""

from typing import Any

import anthropic
import openai
import pytest

from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.waiting import eventually
from tests.serving.gateway.routes import ROUTES, Route

VERSION = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/demo"])
async def test_models_are_told_to_whoever_brings_the_key_in_either_header(
    stack: Stack, path: str
) -> None:
    async with stack.get(path, {"x-api-key": stack.tenant.secret}) as reply:
        assert reply.status == 200
        assert (await reply.json())["object"] in ("list", "model")
    async with stack.get(path, {"x-api-key": catalog.tenant("unknown").secret}) as reply:
        assert reply.status == 401
        assert (await reply.json())["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
async def test_every_route_takes_both_key_headers(stack: Stack, route: Route) -> None:
    await stack.offer_embeddings()
    for headers in ({}, {"authorization": "", "x-api-key": stack.tenant.secret}):
        async with stack.post(route.path, route.body, headers) as reply:
            assert reply.status == 200


async def test_anthropics_client_lists_and_finds_models(stack: Stack) -> None:
    async with anthropic.AsyncAnthropic(
        api_key=stack.tenant.secret, base_url=stack.url, max_retries=0
    ) as client:
        listed = [model async for model in client.models.list(limit=1)]
        assert [model.id for model in listed] == ["demo", "demo:bf16"]
        found = await client.models.retrieve("demo")
        assert found == listed[0]
        assert found.type == "model"
        assert found.display_name == "demo"
        assert found.lifecycle == "active"
        assert (found.max_input_tokens, found.max_tokens) == (512, 256)
        assert found.created_at.tzinfo is not None
        with pytest.raises(anthropic.NotFoundError) as caught:
            await client.models.retrieve("nothing")
        body: Any = caught.value.body
        assert body["error"]["type"] == "not_found_error"
        assert caught.value.request_id == body["request_id"]


async def test_a_list_of_no_models_is_one_too(stack: Stack) -> None:
    stack.control.feed.publish("model", "var_demo", None)
    secret = stack.tenant.secret
    await eventually(lambda: not stack.gateway.directory.models("org_a"))
    async with stack.get("/v1/models", {"x-api-key": secret, **VERSION}) as reply:
        told = await reply.json()
    assert told == {"data": [], "has_more": False, "first_id": None, "last_id": None}


async def test_answers_of_messages_carry_the_id_where_its_clients_look(stack: Stack) -> None:
    asked = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}
    counted = {"model": "demo", "messages": MESSAGES}
    sent = [("/v1/messages", asked), ("/v1/messages/count_tokens", counted)]
    for path, body in (*sent, ("/v1/messages", counted), ("/v1/messages", {"model": "nobody"})):
        async with stack.post(path, body) as reply:
            assert reply.headers["request-id"] == reply.headers["x-request-id"]
    async with anthropic.AsyncAnthropic(
        api_key=stack.tenant.secret, base_url=stack.url, max_retries=0
    ) as client:
        message = await client.messages.create(**asked)  # type: ignore[call-overload]
        assert message.id == f"msg_{message._request_id}"
    async with stack.post("/v1/chat/completions", asked) as reply:
        assert "request-id" not in reply.headers


async def test_openais_client_still_gets_its_own_list(stack: Stack) -> None:
    client: openai.AsyncOpenAI = stack.client()
    assert [model.object async for model in client.models.list()] == ["model", "model"]
