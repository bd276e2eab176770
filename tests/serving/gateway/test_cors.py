"""Pages of other origins: only those that the key's own project allows, and nobody by default."""

import aiohttp
import msgspec
import pytest
from multidict import CIMultiDictProxy

from serving.contract.records import ProjectRecord
from serving.gateway.directory import Directory
from tests.fixtures import catalog
from tests.fixtures.gateway import Stack
from tests.fixtures.waiting import eventually
from tests.serving.gateway.routes import CHAT, ROUTES, Route


@pytest.fixture
async def stack(stack: Stack) -> Stack:
    """A model of each kind."""
    await stack.offer_embeddings()
    return stack


APP, OTHER = "https://app.example.com", "https://other.example.net"
ASKED = "authorization,content-type,x-stainless-lang"
routes = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)


async def allow(stack: Stack, *origins: str, tenant: catalog.Tenant | None = None) -> None:
    """Have a tenant's project allow these origins."""
    project = msgspec.structs.replace((tenant or stack.tenant).project, allowed_origins=origins)
    stack.control.feed.publish("project", project.project_id, project)
    await eventually(lambda: stack.gateway.directory.mirror.version == stack.control.feed.version)


async def preflight(
    stack: Stack, path: str, origin: str = APP, **headers: str
) -> tuple[int, CIMultiDictProxy[str]]:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": ASKED,
    } | headers
    async with (
        aiohttp.ClientSession() as session,
        session.options(stack.url + path, headers=asked) as reply,
    ):
        return reply.status, reply.headers


@routes
async def test_a_preflight_is_answered_for_origins_that_a_project_allows(
    stack: Stack, route: Route
) -> None:
    assert (await preflight(stack, route.path))[0] == 403
    await allow(stack, APP)
    status, headers = await preflight(stack, route.path)
    assert status == 200
    assert headers.getall("access-control-allow-origin") == [APP]
    assert headers["access-control-allow-methods"] == "POST"
    assert headers["access-control-allow-headers"] == ASKED
    assert "access-control-allow-credentials" not in headers
    assert "origin" in headers["vary"]
    status, headers = await preflight(stack, route.path, OTHER)
    assert status == 403
    assert "access-control-allow-origin" not in headers


@routes
async def test_a_page_reads_answers_where_its_own_project_allows_it(
    stack: Stack, route: Route
) -> None:
    await allow(stack, APP)
    async with stack.post(route.path, route.body, {"origin": APP}) as reply:
        assert reply.status == 200
        assert reply.headers.getall("access-control-allow-origin") == [APP]
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
        assert reply.headers["vary"] == "origin"


@routes
async def test_a_page_of_another_projects_origin_is_refused_before_any_work(
    stack: Stack, route: Route
) -> None:
    other = catalog.tenant("b")
    catalog.publish(stack.control, other)
    await allow(stack, OTHER, tenant=other)
    await allow(stack, APP)
    assert (await preflight(stack, route.path, OTHER))[0] == 200
    async with stack.post(route.path, route.body, {"origin": OTHER}) as reply:
        text = await reply.text()
        assert reply.status == 403
        assert "access-control-allow-origin" not in reply.headers
    assert OTHER in text
    assert route.error(403, text) == (
        "permission_error" if route.is_anthropics else "origin_not_allowed"
    )
    assert await stack.booked() == []


async def test_off_an_origin_changes_nothing(stack: Stack) -> None:
    """Extensions and proxies send one too; that another organization lists it is none of ours."""
    other = catalog.tenant("b")
    catalog.publish(stack.control, other)
    await allow(stack, OTHER, tenant=other)
    for origin in (APP, OTHER, "null", "chrome-extension://abc"):
        async with stack.post(CHAT.path, CHAT.body, {"origin": origin}) as reply:
            assert reply.status == 200
            assert "access-control-allow-origin" not in reply.headers


async def test_a_page_may_read_why_its_key_is_refused(stack: Stack) -> None:
    await allow(stack, APP)
    for headers, status in (
        ({"authorization": "Bearer wrong"}, 401),
        ({"content-encoding": "gzip"}, 415),
        ({}, 400),
    ):
        async with stack.post(CHAT.path, {"model": "demo"}, headers | {"origin": APP}) as reply:
            assert reply.status == status
            assert reply.headers["access-control-allow-origin"] == APP


async def test_streams_and_models_are_read_too(stack: Stack) -> None:
    await allow(stack, APP)
    async with stack.post(CHAT.path, CHAT.body | {"stream": True}, {"origin": APP}) as reply:
        assert (await reply.text()).endswith("data: [DONE]\n\n")
        assert reply.headers["access-control-allow-origin"] == APP
    headers = {"authorization": f"Bearer {stack.tenant.secret}", "origin": APP}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{stack.url}/v1/models", headers=headers) as reply,
    ):
        assert reply.headers["access-control-allow-origin"] == APP
    status, told = await preflight(stack, "/v1/models")
    assert (status, told["access-control-allow-methods"]) == (200, "GET")


async def test_what_no_browser_asks_is_no_preflight(stack: Stack) -> None:
    await allow(stack, APP)
    async with aiohttp.ClientSession() as session:
        async with session.options(stack.url + CHAT.path) as reply:
            assert (reply.status, reply.headers["allow"]) == (405, "POST")
        async with session.options(f"{stack.url}/v1/none", headers={"origin": APP}) as reply:
            assert reply.status == 404


async def test_an_origin_ends_with_the_last_project_that_allows_it(stack: Stack) -> None:
    other = catalog.tenant("b")
    catalog.publish(stack.control, other)
    await allow(stack, APP, tenant=other)
    await allow(stack, APP)
    await allow(stack)
    assert (await preflight(stack, CHAT.path))[0] == 200
    archived = msgspec.structs.replace(other.project, status="archived", allowed_origins=(APP,))
    stack.control.feed.publish("project", archived.project_id, archived)
    await eventually(lambda: stack.gateway.directory.mirror.version == stack.control.feed.version)
    assert (await preflight(stack, CHAT.path))[0] == 403


def test_an_older_controls_projects_allow_nobody() -> None:
    raw = b'{"project_id": "p", "organization_id": "o", "budget_ids": []}'
    assert msgspec.json.decode(raw, type=ProjectRecord).allowed_origins == ()
    assert not Directory("salt").is_allowed_somewhere(APP)
