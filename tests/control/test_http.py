"""What every answer of control holds to: policy, listeners, outages."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models.sql.compiler import SQLCompiler
from django.test import AsyncClient, Client
from rest_framework.test import APIClient

from control import asgi
from control import settings as control_settings
from control.accounts.models import User
from control.api_keys.models import Scope
from control.feed.selectors import FeedQuery
from control.telemetry.health import Application
from tests.fixtures.credentials import bearer
from tests.fixtures.organizations import SeededOrganization

HEADER = "Content-Security-Policy"
STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'"
)
LOOSE = "script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'"
BEARER = bearer("gateway")


def directives(reply: Any) -> set[str]:
    return set(reply.headers[HEADER].split("; "))


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/accounts/login/", "/accounts/signup/", "/nowhere", "/api/v1/x"])
def test_pages_carry_the_strict_policy(client: Client, path: str) -> None:
    assert directives(client.get(path)) == set(STRICT.split("; "))


@pytest.mark.django_db
def test_only_the_admin_is_looser(client: Client) -> None:
    looser = directives(client.get("/admin/login/")) - set(STRICT.split("; "))
    assert looser == {*LOOSE.split("; "), "frame-src 'self'"}
    assert "script-src 'self'" in directives(client.get("/api/v1/docs"))


@pytest.mark.django_db
async def test_asynchronous_answers_carry_the_policy_too(async_client: AsyncClient) -> None:
    assert directives(await async_client.get("/accounts/login/")) == set(STRICT.split("; "))


@pytest.mark.parametrize(
    "path",
    [
        "{base}/api-keys/%00",
        "/api/v1/organization/costs?start_time=0&organization_id=%00",
        "/{id}/usage?model=%00",
        "/admin/organizations/organization/%00/change/",
    ],
)
def test_an_address_with_a_null_character_leads_nowhere(
    org: SeededOrganization, base: str, client: Client, path: str
) -> None:
    client.force_login(org.owner)
    reply = client.get(path.format(base=base, id=org.id))
    assert (reply.status_code, directives(reply)) == (404, set(STRICT.split("; ")))


@pytest.mark.django_db
async def test_so_it_does_asynchronously(async_client: AsyncClient) -> None:
    assert (await async_client.get("/api/v1/organizations/%00")).status_code == 404


@pytest.fixture
def served(settings) -> None:
    """Static files as the product serves them: all are found when it starts."""
    settings.SERVESTATIC_AUTOREFRESH = False


@pytest.mark.usefixtures("served")
def test_static_files_are_served_and_nothing_beside_them(client: Client) -> None:
    reply = client.get("/static/unfold/css/styles.css")
    assert reply.headers["content-type"].startswith("text/css")
    assert client.get("/static/../control/settings.py").status_code == 404
    date = {"if-modified-since": reply.headers["last-modified"]}
    assert client.get("/static/unfold/css/styles.css", headers=date).status_code == 304


@pytest.mark.usefixtures("served")
async def test_static_files_are_served_asynchronously(async_client: AsyncClient) -> None:
    reply = await async_client.get("/static/unfold/css/styles.css")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/css")


def test_no_host_is_taken_that_nobody_configured() -> None:
    assert not {"*", "testserver"} & set(control_settings.ALLOWED_HOSTS)


Messages = list[dict[str, Any]]


async def call(application: Application, path: str) -> Messages:
    sent: Messages = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application({"type": "http", "path": path}, receive, send)
    return sent


async def hello(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})


@pytest.mark.parametrize(
    ("side", "path", "status"),
    [
        (asgi.public, "/internal/v1/feed", 404),
        (asgi.public, "/accounts/login/", 200),
        (asgi.internal, "/internal/v1/feed", 200),
        (asgi.internal, "/accounts/login/", 404),
        (asgi.internal, "/", 404),
    ],
)
async def test_each_listener_shows_its_side_only(
    side: Callable[[Application], Application], path: str, status: int
) -> None:
    assert (await call(side(hello), path))[0]["status"] == status


@pytest.fixture
def database_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let every query fail from the call of this on."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("connection refused")

    return lambda: monkeypatch.setattr(SQLCompiler, "execute_sql", fail)


def test_without_the_database_a_key_is_not_called_wrong(
    org: SeededOrganization, base: str, database_away: Callable[[], None]
) -> None:
    _, secret = org.mint(scopes=[Scope.MANAGE])
    database_away()
    reply = APIClient(headers={"authorization": f"Bearer {secret}"}).get(f"{base}/api-keys")
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "2"
    assert reply.json()["error"]["code"] == "database_unavailable"


def test_without_the_database_a_session_is_not_called_wrong(
    api: APIClient, base: str, database_away: Callable[[], None]
) -> None:
    database_away()
    reply = api.get(base)
    assert reply.status_code == 503
    assert "OperationalError" not in reply.content.decode()


@pytest.mark.django_db
def test_without_the_database_pages_say_so(database_away: Callable[[], None]) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_user("ada@example.com"))
    database_away()
    reply = client.get("/admin/")
    assert reply.status_code == 503
    assert "retry-after" in reply.headers
    assert "One moment" in reply.content.decode()


@pytest.mark.django_db
def test_without_the_database_the_feed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(asked: FeedQuery) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("control.feed.views.page_for", fail)
    client = Client(raise_request_exception=False, headers=BEARER)
    reply = client.get("/internal/v1/feed", {"after": 0})
    assert reply.status_code == 503
    assert reply.json()["error"]["code"] == "database_unavailable"


@pytest.mark.django_db
def test_a_bug_of_ours_shows_nothing_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(asked: FeedQuery) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("control.feed.views.page_for", fail)
    client = Client(raise_request_exception=False, headers=BEARER)
    reply = client.get("/internal/v1/feed", {"after": 0})
    assert reply.status_code == 500
    assert "secret detail" not in reply.content.decode()
