"""A database that is paused: it takes what it is sent and never answers.

A real PostgreSQL, stopped with SIGSTOP while connections to it are open, and every address of the
URL table asked at once.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Timer

import psutil
import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections
from django.test import Client
from psycopg_pool import ConnectionPool, PoolTimeout

from control.db import connection as control_connection
from control.db.connection import TimeoutConnection
from control.operators import services as operators
from control.server import CONNECTION_SECONDS
from control.telemetry import health as readiness
from control.telemetry.health import ANSWER_SECONDS as ANSWER_SECONDS_IN_PRODUCTION
from control.telemetry.health import Health, checks, is_ready
from infra.local.postgres import ADDRESS, DATABASE, SUPERUSER, Postgres, prepare
from serving.contract.api_key import make_secret
from tests.fixtures.corpus import quarter
from tests.fixtures.credentials import bearer
from tests.fixtures.environment import free_port
from tests.fixtures.routes import Route, routes

pytestmark = pytest.mark.integration
WITHIN_SECONDS = 3.0
"""What the waits come to in production."""
LATE_SECONDS = 30.0
"""An answer that comes as late waited for the database, however busy the machine is."""
POOL_SECONDS = 0.2
CHECK_SECONDS = 0.1
ANSWER_SECONDS = 0.2
"""Shorter waits than in production, so that a busy machine is not taken for one that waits."""
PAUSED_SECONDS_MAX = 240.0
"""Then the server goes on, so that a test of what waits for ever ends too, and fails."""
PARTS = 4
ONE_IN = 15
"""Of the admin's hundreds of addresses, which are alike."""
NO_DATABASE = {
    "theme",
    "metrics",
    "api/v1/schema",
    "api/v1/docs",
    "accounts/logout/",
    "accounts/login/trust-device/<str:token>/",
    "accounts/2fa/webauthn/",
    "accounts/inactive/",
    "accounts/confirm-email/",
    r"accounts/^confirm-email/(?P<key>[-:\w]+)/$",
    "accounts/password/reset/",
    "accounts/password/reset/done/",
    "accounts/password/reset/key/done/",
    "sso/",
}
"""What is answered without asking the database."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[psutil.Process]:
    """A PostgreSQL of this module's own; its `url` is how to reach it."""
    made: Postgres = prepare(
        tmp_path_factory.mktemp("paused") / "data", port=free_port(), password="x"
    )
    made.data.parent.chmod(0o755)
    with (made.data.parent / "log").open("w") as log:
        process = subprocess.Popen(
            made.command("fsync=off"), user=made.system_user, cwd=os.sep, stdout=log, stderr=log
        )
    until = time.monotonic() + 60
    while not _answers(made.port):
        assert process.poll() is None and time.monotonic() < until, Path(log.name).read_text()
        time.sleep(0.05)
    found = psutil.Process(process.pid)
    found.url = f"postgresql://{SUPERUSER}:x@{ADDRESS}:{made.port}/{DATABASE}"  # type: ignore[attr-defined]
    yield found
    send_all(family(found), signal.SIGCONT)
    process.send_signal(signal.SIGQUIT)
    process.wait(60)


def _answers(port: int) -> bool:
    with suppress(psycopg.Error):
        psycopg.connect(
            host=ADDRESS, port=port, user=SUPERUSER, password="x", dbname=DATABASE
        ).close()
        return True
    return False


def family(server: psutil.Process) -> list[psutil.Process]:
    """Return the server and the process of each connection."""
    return [server, *server.children(recursive=True)]


def send_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to processes; one of a connection may have ended meanwhile."""
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(number)


@pytest.fixture
def pause(server: psutil.Process) -> Iterator[None]:
    """Pause the server; it goes on when the test ends, or has waited in vain."""
    stopped = family(server)
    send_all(stopped, signal.SIGSTOP)
    timer = Timer(PAUSED_SECONDS_MAX, send_all, (stopped, signal.SIGCONT))
    timer.start()
    yield
    timer.cancel()
    send_all(stopped, signal.SIGCONT)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second or two of production are tenths here; `POOL_SECONDS` of a pool once it is open."""
    monkeypatch.setattr(control_connection, "CHECK_SECONDS", CHECK_SECONDS)


@pytest.fixture
def pool(soon: None, server: psutil.Process) -> Iterator[ConnectionPool]:
    options = settings.DATABASES["default"]["OPTIONS"]
    made = ConnectionPool(
        server.url,
        open=True,
        check=ConnectionPool.check_connection,
        kwargs={"connect_timeout": 3, "autocommit": True},
        **{**options["pool"], "min_size": 4, "timeout": LATE_SECONDS},
    )
    made.wait(60)
    yield made
    made.close()


def test_in_production_the_waits_come_to_less() -> None:
    assert CONNECTION_SECONDS + control_connection.CHECK_SECONDS < 0.6 * WITHIN_SECONDS
    assert ANSWER_SECONDS_IN_PRODUCTION < WITHIN_SECONDS


def seconds_of(act: object) -> float:
    began = time.monotonic()
    act()  # type: ignore[operator]
    return time.monotonic() - began


def test_a_connection_that_is_open_already_is_waited_for_no_longer(
    pool: ConnectionPool, request: pytest.FixtureRequest
) -> None:
    pool.timeout = POOL_SECONDS
    request.getfixturevalue("pause")

    def ask() -> None:
        with pytest.raises(PoolTimeout):
            pool.getconn()

    assert seconds_of(ask) < LATE_SECONDS


def test_a_query_under_way_ends(
    pool: ConnectionPool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimeoutConnection, "answer_seconds", 0.5)
    with pool.connection() as found:
        request.getfixturevalue("pause")
        with pytest.raises(psycopg.OperationalError, match="no answer from the database"):
            found.execute("SELECT 1")
        assert found.closed


def test_one_stopped_backend_costs_a_reconnection_and_no_request(
    pool: ConnectionPool, server: psutil.Process
) -> None:
    with pool.connection() as found:
        backend = psutil.Process(found.info.backend_pid)
    backend.send_signal(signal.SIGSTOP)
    try:
        for _ in range(5):
            with pool.connection() as found:
                assert found.execute("SELECT 1").fetchone() == (1,)
    finally:
        backend.send_signal(signal.SIGCONT)


@pytest.fixture
def on_it(
    server: psutil.Process, django_db_blocker: object, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Django on this server, with connections open to it."""
    parts = psycopg.conninfo.conninfo_to_dict(server.url)
    place = {"NAME": parts["dbname"], "USER": parts["user"], "PASSWORD": parts["password"]}
    place |= {"HOST": parts["host"], "PORT": parts["port"]}
    for name, value in place.items():
        monkeypatch.setitem(connections.databases["default"], name, value)
    connection.close_pool()
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        del connections["default"]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: _touch(), range(8)))
        Client().get("/nowhere")  # what is loaded at the first request is none of the waiting
        connection.pool.timeout = POOL_SECONDS
        yield
        connection.close()
        connection.close_pool()
        del connections["default"]


def _touch() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    connection.close()


def asked(route: Route) -> tuple[Route, int, float]:
    """Ask for an address as somebody who may be known; return status and seconds."""
    client = Client(raise_request_exception=False)
    headers: dict[str, str] = {}
    if route.room == "api":
        is_operators = route.template.startswith("api/v1/admin/")
        secret = operators.make_secret() if is_operators else make_secret(lambda each: each[0])
        headers["authorization"] = f"Bearer {secret}"
    elif route.room == "scim":
        headers["authorization"] = "Bearer somebodys"
    elif route.room in ("internal", "metrics"):
        of_fleets = any(part in route.path({}) for part in ("engine-counters", "fleets/"))
        headers |= bearer("fleet" if of_fleets else "gateway")
    else:
        client.cookies[settings.SESSION_COOKIE_NAME] = "x" * 32
    began = time.monotonic()
    reply = client.get(route.path({"app_label": "tenants"}) + "?after=0", headers=headers)
    return route, reply.status_code, time.monotonic() - began


@pytest.mark.usefixtures("on_it", "pause")
async def test_readiness_is_no_within_three_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "CONNECT_SECONDS", 60)  # the first goes on as long
    health = Health(checks, ANSWER_SECONDS)
    began = time.monotonic()
    assert not is_ready(await health.ask())
    first = health._asking
    assert not is_ready(await health.ask())
    assert time.monotonic() - began < LATE_SECONDS
    assert health._asking is first  # nobody asks anew while the first waits
    assert first is not None
    first.cancel()


@pytest.mark.usefixtures("soon", "on_it", "pause")
@pytest.mark.parametrize("part", quarter(range(PARTS)))
def test_every_address_says_so_within_three_seconds(part: int) -> None:
    every = routes()
    asked_for = [each for each in every if each.room != "admin"]
    asked_for += [each for each in every if each.room == "admin"][::ONE_IN]
    asked_for = asked_for[part::PARTS]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(asked, asked_for))
    late = [answer for answer in answers if answer[2] >= LATE_SECONDS]
    assert not late, "\n".join(map(str, late))
    odd = [
        (route.template, status) for route, status, _ in answers if status not in (503, 404, 405)
    ]
    odd = [each for each in odd if each[0] not in NO_DATABASE]
    assert not odd, "\n".join(map(str, odd))
    found = [status for _, status, _ in answers if status not in (404, 405)]
    assert found.count(503) > 0.7 * len(found)
