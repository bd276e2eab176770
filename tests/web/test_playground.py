"""The playground's stream: relayed as it comes, priced at its end, stopped with the browser."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client

from control.api_keys.models import ApiKey, ApiKeyKind
from control.pricing.models import Price
from serving.contract.api_key import is_well_formed
from serving.contract.price import charge
from tests.fixtures.gateway_double import WORDS, GatewayDouble
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address
from web.console.playground.client import PlaygroundRun, relay

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
async def connections_end() -> AsyncIterator[None]:
    """Django's test client leaves connections open, here in the thread of synchronous work."""
    yield
    await sync_to_async(connections.close_all)()


def question(org: SeededOrganization, **changes: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is Penstock?"}]
    asked = {"model": "penstock-demo", "project_id": org.project.id, "messages": messages}
    return asked | changes


def url(org: SeededOrganization) -> str:
    return address(org.organization, "playground_stream")


async def events(chunks: AsyncIterator[bytes]) -> list[tuple[str, dict[str, Any]]]:
    text = b"".join([chunk async for chunk in chunks]).decode()
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields.get("event", "message"), json.loads(fields["data"])))
    return found


async def ask(org: SeededOrganization, **changes: Any) -> list[tuple[str, dict[str, Any]]]:
    client = AsyncClient()
    await client.aforce_login(org.owner)
    body = question(org, **changes)
    reply = await client.post(url(org), body, content_type="application/json")
    assert reply.status_code == 200
    assert reply["content-type"] == "text/event-stream"
    return await events(reply.streaming_content)


async def test_the_answer_comes_through_and_ends_in_its_receipt(
    org: SeededOrganization, prices: dict[str, Price], gateway: GatewayDouble
) -> None:
    told = await ask(org)
    words = [data["choices"][0]["delta"]["content"] for name, data in told[1:-2]]
    name, receipt = told[-1]
    assert told[0][0] == "opened"
    assert words == [f"{word} " for word in WORDS]
    assert name == "receipt"
    assert (
        receipt["charge_nanos"]
        == charge(
            prices["bf16"], input_tokens=120, cached_input_tokens=96, output_tokens=len(WORDS)
        ).total_nanos
    )


async def test_the_gateway_is_asked_with_a_derived_key_of_the_member(
    org: SeededOrganization, prices: dict[str, Price], gateway: GatewayDouble
) -> None:
    await ask(org, temperature=0.5, max_tokens=64)
    key = await ApiKey.objects.aget()
    (secret,), (body,) = gateway.secrets, gateway.bodies
    assert key.kind == ApiKeyKind.PLAYGROUND
    assert is_well_formed(secret)
    assert (body["temperature"], body["max_tokens"], body["stream"]) == (0.5, 64, True)


TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


async def test_tools_and_formats_are_passed_on_and_calls_answered(
    org: SeededOrganization, prices: dict[str, Price], gateway: GatewayDouble
) -> None:
    told = await ask(org, tools=[TOOL], response_format=FORMAT)
    assert told[-1][1]["ttft_seconds"] is not None
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": "{}"},
    }
    turns = [
        {"role": "user", "content": "What is the weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "12 degrees", "tool_call_id": "call_1"},
    ]
    assert (await ask(org, tools=[TOOL], messages=turns))[-1][0] == "receipt"
    first, second = gateway.bodies
    assert (first["tools"], first["response_format"]) == ([TOOL], FORMAT)
    assert second["messages"] == turns


async def test_what_the_gateway_minds_about_a_tool_is_told(
    org: SeededOrganization, prices: dict[str, Price], gateway: GatewayDouble
) -> None:
    minded = "Invalid value for 'tools[0].function.parameters': 'type' is not a JSON Schema type."
    gateway.refusals = [(400, {"message": minded, "code": "invalid_value"})]
    ((name, failure),) = await ask(org, tools=[TOOL])
    assert (name, failure["message"]) == ("failure", minded)


async def test_a_key_that_the_gateway_has_yet_to_hear_of_is_waited_for(
    org: SeededOrganization, prices: dict[str, Price], gateway: GatewayDouble
) -> None:
    gateway.refusals = [(401, {"message": "no", "code": "invalid_api_key"})] * 2
    assert (await ask(org))[-1][0] == "receipt"


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "key_budget_exceeded"), (503, "model_unavailable"), (418, "teapot")],
)
async def test_a_refusal_is_told_in_the_gateways_words(
    org: SeededOrganization,
    prices: dict[str, Price],
    gateway: GatewayDouble,
    status: int,
    code: str,
) -> None:
    minded = "This request could cost $0.31, and $0.12 is left."
    gateway.refusals = [(status, {"message": minded, "code": code})]
    ((name, failure),) = await ask(org)
    assert (name, failure) == ("failure", {"message": minded, "code": code})


async def test_an_answer_that_breaks_off_has_no_receipt(
    org: SeededOrganization, prices: dict[str, Price], gateway: GatewayDouble
) -> None:
    gateway.breaks_off = True
    told = await ask(org)
    assert [name for name, _ in told].count("failure") == 1
    assert "receipt" not in [name for name, _ in told]


async def test_the_word_error_is_no_error(
    org: SeededOrganization, prices: dict[str, Price], gateway: GatewayDouble
) -> None:
    gateway.said = [{"content": "error"}]
    told = await ask(org)
    assert [name for name, _ in told] == ["opened", "message", "message", "receipt"]


async def test_a_gateway_that_is_away_is_said_in_words(
    org: SeededOrganization, prices: dict[str, Price]
) -> None:
    ((name, failure),) = await ask(org)
    assert (name, failure["code"]) == ("failure", "unreachable")


async def test_a_browser_that_leaves_aborts_the_work(gateway: GatewayDouble) -> None:
    gateway.pause_seconds = 5.0  # so slowly that the answer has not ended by itself
    price = Price(input_nanos=1, cached_input_nanos=1, output_nanos=1)
    body = {"stream": True}
    stream = relay(
        PlaygroundRun(f"{gateway.url}/chat/completions", "/r/", "secret", body, (price,))
    )
    assert b"opened" in await anext(stream)
    await anext(stream)
    await stream.aclose()
    assert await asyncio.to_thread(gateway.aborted.wait, 60)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 3},
        {"messages": []},
        {"messages": [{"role": "operator", "content": "x"}]},
        {"priority": 9},
        {"max_tokens": 0},
        {"tools": []},
        {"tools": "get_weather"},
        {"response_format": "json"},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": []}]},
    ],
)
def test_what_cannot_be_asked_is_refused(
    member: Client, org: SeededOrganization, changes: dict[str, Any]
) -> None:
    reply = member.post(url(org), question(org, **changes), "application/json")
    assert reply.status_code == 400
    assert "This request is not valid" in reply.json()["message"]


def test_nothing_is_asked_for_anothers_project_or_of_an_unknown_model(
    member: Client,
    org: SeededOrganization,
    outsider: SeededOrganization,
    prices: dict[str, Price],
) -> None:
    their_project = question(outsider)
    assert member.post(url(org), their_project, "application/json").status_code == 404
    unknown = question(org, model="gpt-9")
    assert member.post(url(org), unknown, "application/json").status_code == 404


def test_who_is_not_signed_in_is_told(client: Client, org: SeededOrganization) -> None:
    reply = client.post(url(org), question(org), "application/json")
    assert reply.status_code == 401
    assert "signed out" in reply.json()["message"]


def test_another_site_cannot_ask(org: SeededOrganization) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(org.owner)
    assert client.post(url(org), question(org), "application/json").status_code == 403
