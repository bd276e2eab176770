"""What no engine can do is refused by its field; who must not share an engine, does not."""

from typing import Any

import msgspec
import pytest

from serving.contract.replica import CACHE_SALT, NO_PREFIX_CACHE
from serving.engine.adapter import GENERATION_CAPABILITIES, ExternalAdapter
from serving.engine.vllm import VllmAdapter
from tests.fixtures import catalog
from tests.fixtures.gateway import MESSAGES, Stack
from tests.fixtures.waiting import eventually

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASK: dict[str, Any] = {"model": "demo", "messages": MESSAGES, "max_tokens": 2}
TEXT: dict[str, Any] = {"model": "demo", "prompt": "hi", "max_tokens": 2}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


async def declare(stack: Stack, *capabilities: str, dedicated_to: str | None = None) -> None:
    """Have the only replica declare these alone."""
    url = f"http://127.0.0.1:{stack.engines[0].port}"
    record = msgspec.structs.replace(catalog.replica(url), capabilities=capabilities)
    stack.control.fleet.publish("replica", "rep_1", record)
    deployment = catalog.deployment(dedicated_to=dedicated_to)
    stack.control.feed.publish("deployment", "dep_var_demo", deployment)
    directory = stack.gateway.directory
    await eventually(lambda: directory.pools["dep_var_demo"].capabilities == set(capabilities))
    await eventually(lambda: directory.mirror.version == stack.control.feed.version)


async def ask(stack: Stack, path: str, body: Any) -> tuple[int, str | None, str | None]:
    async with stack.post(path, body) as reply:
        error = (await reply.json()).get("error", {})
        return reply.status, error.get("code"), error.get("param")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, ASK | {"tools": TOOLS}, "tools"),
        (CHAT, ASK | {"response_format": SCHEMA}, "response_format"),
        (CHAT, ASK | {"response_format": {"type": "json_object"}}, "response_format"),
        (CHAT, ASK | {"logprobs": True}, "logprobs"),
        (COMPLETIONS, TEXT | {"logprobs": 1}, "logprobs"),
    ],
)
async def test_a_feature_that_no_engine_has_is_refused_by_its_field(
    stack: Stack, path: str, body: dict[str, Any], param: str
) -> None:
    assert (await ask(stack, path, body))[0] == 200
    await declare(stack, *GENERATION_CAPABILITIES)
    assert await ask(stack, path, body) == (400, "unsupported_value", param)
    missing = {"response_format": "json_schema"}.get(param, param)
    others = {"tools", "json_schema", "logprobs"} - {missing}
    await declare(stack, *GENERATION_CAPABILITIES, *sorted(others))
    assert await ask(stack, path, body) == (400, "unsupported_value", param)
    await eventually(lambda: len(stack.events) == 1)


@pytest.mark.parametrize(
    "fields",
    [{}, {"tools": TOOLS, "tool_choice": "none"}, {"response_format": {"type": "text"}},
     {"logprobs": False}, {"stop": ["x"], "seed": 1, "temperature": 0.5}],
)  # fmt: skip
async def test_what_needs_no_feature_is_served_without_any(
    stack: Stack, fields: dict[str, Any]
) -> None:
    await declare(stack, *GENERATION_CAPABILITIES)
    assert (await ask(stack, CHAT, ASK | fields))[0] == 200


async def test_the_deployment_that_can_is_chosen_among_those_that_cannot(stack: Stack) -> None:
    await declare(stack, *GENERATION_CAPABILITIES)
    able = msgspec.structs.replace(catalog.deployment(), deployment_id="dep_able")
    url = f"http://127.0.0.1:{stack.engines[0].port}"
    replica = msgspec.structs.replace(catalog.replica(url, 2), deployment_id="dep_able")
    stack.control.feed.publish("deployment", "dep_able", able)
    stack.control.fleet.publish("replica", "rep_2", replica)
    await eventually(lambda: "dep_able" in stack.gateway.directory.pools)
    await eventually(lambda: stack.gateway.directory.pools["dep_able"].has_ready_replica)
    assert (await ask(stack, CHAT, ASK | {"tools": TOOLS}))[0] == 200


async def test_an_engine_that_keeps_nobody_apart_serves_one_organization_alone(
    stack: Stack,
) -> None:
    await declare(stack, "chat", "stream")
    assert (await ask(stack, CHAT, ASK))[:2] == (503, "model_unavailable")
    await declare(stack, "chat", "stream", NO_PREFIX_CACHE)
    assert (await ask(stack, CHAT, ASK))[0] == 200
    await declare(stack, "chat", "stream", dedicated_to="org_a")
    assert (await ask(stack, CHAT, ASK))[0] == 200


def test_a_server_of_others_promises_only_what_its_deployment_declares() -> None:
    external = ExternalAdapter()
    assert CACHE_SALT not in external.capabilities(catalog.deployment())
    declared = catalog.deployment(engine_arguments=("cache_salt", "tools"))
    assert {"cache_salt", "tools"} <= set(external.capabilities(declared))
    assert "tools" not in VllmAdapter("cpu").capabilities(catalog.deployment())
