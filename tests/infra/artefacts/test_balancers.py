"""nginx and HAProxy with the shipped configuration, before a gateway and control's server."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from control.http_protocol import ProxiedConnections
from infra.local.config import ROOT
from tests.fixtures import catalog
from tests.fixtures.balancers import (
    API,
    CONSOLE,
    HAPROXY,
    NGINX,
    Balancer,
    commands,
    edited,
    request,
    running,
)
from tests.fixtures.gateway import running_stack
from tests.fixtures.gateway_process import gateway_process
from tests.fixtures.serving import serving

pytestmark = [pytest.mark.integration, pytest.mark.long]
BALANCERS = (*NGINX, HAPROXY)
INTERNAL = ROOT / "infra/haproxy/control-internal.cfg"
BALANCERS_ADDRESS = "127.0.0.1/32"
INSIDE, OUTSIDE = "127.0.0.2", "127.0.0.3"
BOUND = catalog.tenant("bound", networks=(f"{INSIDE}/32",))
FORGED = {
    "x-forwarded-for": INSIDE,
    "x-real-ip": INSIDE,
    "forwarded": f"for={INSIDE}",
    "true-client-ip": INSIDE,
}
CHAT = {"model": "demo", "stream": True, "max_tokens": 200}
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("name", BALANCERS)
def test_the_program_accepts_its_configuration(name: str, tmp_path: Path) -> None:
    check, _ = commands(name, edited(name, tmp_path, {}).path)
    ran = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_the_program_accepts_the_internal_port_beside_the_rest(tmp_path: Path) -> None:
    check, _ = commands(HAPROXY, edited(HAPROXY, tmp_path, {}).path)
    ran = subprocess.run([*check, "-f", str(INTERNAL)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


async def who(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the client and the scheme of the request, and what nginx would obey."""
    body = f"{scope['scheme']} {scope['client'][0]}".encode()
    headers = [(b"content-length", str(len(body)).encode()), (b"x-accel-redirect", b"/elsewhere")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Front:
    """A balancer, and what its gateway has had booked."""

    balancer: Balancer
    events: Callable[[], list[Any]]


@asynccontextmanager
async def front(name: str, folder: Path) -> AsyncIterator[Front]:
    """Run a gateway with a simulated engine, a server of control's, and a balancer before both."""
    here = (ip_network(BALANCERS_ADDRESS),)
    named: dict[str, Any] = {"trusted_proxies": here}
    variable = "PENSTOCK_TRUSTED_PROXIES"
    if name != NGINX[0]:
        named = {"proxied": ProxiedConnections(here, scheme="https")}
        variable = "PENSTOCK_PROXY_PROTOCOL_FROM"
    for each in ("gateway", "stack", "balancer"):
        (folder / each).mkdir()
    async with running_stack(folder / "stack", itl_seconds=0.02) as stack:
        catalog.publish(stack.control, BOUND)
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv(variable, BALANCERS_ADDRESS)
            process = gateway_process(folder / "gateway", stack.control.url)
            async with process as gateway:
                with serving(who, **named) as control, ExitStack() as exits:
                    places = {
                        "127.0.0.1:8701": urlsplit(gateway.url).netloc,
                        "127.0.0.1:8700": urlsplit(control).netloc,
                        "8703": str(urlsplit(gateway.operator_url).port),
                    }
                    enter = running(name, folder / "balancer", places)
                    balancer = await asyncio.to_thread(exits.enter_context, enter)
                    yield Front(balancer, lambda: stack.events)


def answer(front: Front, *arguments: Any, **more: Any) -> tuple[int, str]:
    """Return status and body of a request; 0 where no answer came."""
    try:
        with request(front.balancer, *arguments, **more) as response:
            return response.status, response.read().decode()
    except OSError as error:
        return 0, type(error).__name__


def first_chunk(front: Front, headers: dict[str, str]) -> tuple[bool, str]:
    """Return whether nothing was booked yet when a stream's first chunk came, and its last line."""
    body = json.dumps(CHAT | {"messages": MESSAGES})
    sent = headers | {"content-type": "application/json"}
    path = "/v1/chat/completions"
    with request(
        front.balancer, API, path, source=INSIDE, method="POST", body=body, headers=sent
    ) as response:
        assert response.readline().startswith(b"data: ")
        is_early = not front.events()
        return is_early, response.read().decode().split()[-1]


@pytest.mark.parametrize("name", BALANCERS)
async def test_clients_are_known_through_it(name: str, tmp_path: Path) -> None:
    bearer = {"authorization": f"Bearer {BOUND.secret}"}
    async with front(name, tmp_path) as behind:

        async def status(source: str, headers: dict[str, str]) -> int:
            more = {"source": source, "headers": headers}
            return (await asyncio.to_thread(answer, behind, API, "/v1/models", **more))[0]

        assert await status(INSIDE, bearer) == 200
        assert await status(OUTSIDE, bearer) == 401
        assert await status(OUTSIDE, bearer | FORGED) == 401
        assert await status(INSIDE, bearer | {"x-forwarded-for": OUTSIDE}) == 200
        assert await asyncio.to_thread(first_chunk, behind, bearer) == (True, "[DONE]")
        for headers in ({}, FORGED, {"x-forwarded-proto": "http"}):
            more = {"source": OUTSIDE, "headers": headers}
            told = await asyncio.to_thread(answer, behind, CONSOLE, "/", **more)
            assert told == (200, f"https {OUTSIDE}"), "and no word of control's moves nginx"
        assert (await asyncio.to_thread(answer, behind, "other.example.com", "/"))[0] == 0
