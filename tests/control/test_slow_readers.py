"""Clients that ask for much and read nothing: others are served, and their connections end."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
from django.db import connections
from django.http.response import HttpResponseBase
from psycopg_pool import ConnectionPool

from billing.reading import requests_api
from control import http_protocol
from control.api import streaming
from control.api_keys.services import create_api_key
from control.asgi import application, internal_application
from control.organizations.models import Organization
from tests.fixtures.credentials import bearer
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.serving import serving
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
READERS = 25
"""More than the pool of customers has connections (20)."""
FEED = "/internal/v1/feed?after=0&limit=1"
CHUNK = b"x" * 2**20
CHUNKS = 64
ROOT = Path(__file__).parents[2]
SENT = re.compile(r"StreamingHttpResponse\(|Content-Disposition")


@pytest.fixture(autouse=True)
def no_other_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other tests, whose client may not have closed them, count for nothing."""
    monkeypatch.setattr(streaming, "EXPORTS", streaming.Exports())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Exports of 64 MiB, a MiB for each query; their pages that were read."""
    found: list[int] = []

    def pages(*_asked: Any, **_more: Any) -> Iterator[bytes]:
        for _ in range(CHUNKS):
            found.append(Organization.objects.count())
            yield CHUNK

    monkeypatch.setitem(requests_api.REQUEST_FILES, "csv", pages)
    return found


class Tenant(NamedTuple):
    """An API key, and the export of its organization's requests."""

    key: str
    export: str


@pytest.fixture
def tenants() -> list[Tenant]:
    """Two organizations that may be asked for by many at once."""
    return [tenant_of(make_organization(f"Org {n}", f"ada@{n}.example")) for n in range(2)]


def tenant_of(org: SeededOrganization) -> Tenant:
    key = create_api_key(actor=org.actor, project=org.project, name="x", scopes=["manage"])[1]
    return Tenant(key, f"/api/v1/organizations/{org.id}/requests?start_time=1")


@pytest.fixture
def address() -> Iterator[str]:
    with serving(application) as found:
        yield found
    connections.close_all()


@pytest.fixture
def one_connection(
    monkeypatch: pytest.MonkeyPatch, tenants: list[Tenant]
) -> Iterator[ConnectionPool]:
    """The pool of customers, with one connection."""
    options = connections["default"].settings_dict["OPTIONS"]["pool"]
    monkeypatch.setitem(options, "max_size", 1)
    monkeypatch.setitem(options, "timeout", 20.0)
    connections["default"].close()
    connections["default"].close_pool()
    pool = connections["default"].pool
    pool.open()
    yield pool
    connections["default"].close()
    connections["default"].close_pool()


@contextmanager
def reader(address: str, tenant: Tenant) -> Iterator[socket.socket]:
    """Ask for a file, and read nothing of it."""
    place = urlsplit(address)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((place.hostname, place.port))
        client.sendall(f"GET {tenant.export} HTTP/1.1\r\nHost: {place.netloc}\r\n"
                       f"Authorization: Bearer {tenant.key}\r\n\r\n".encode())  # fmt: skip
        yield client


def status_of(client: socket.socket) -> int:
    client.settimeout(30)
    return int(client.recv(12).split()[1])


def asked(address: str, tenant: Tenant) -> int:
    """Return what a neighbour is answered."""
    headers = {"authorization": f"Bearer {tenant.key}"}
    return httpx.get(f"{address}/api/v1/organizations", headers=headers, timeout=30).status_code


def lift_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CALLER_EXPORTS_MAX", "ORGANIZATION_EXPORTS_MAX"):
        monkeypatch.setattr(streaming, name, READERS)


def test_a_neighbour_is_served_beside_readers_that_read_nothing(
    monkeypatch: pytest.MonkeyPatch, reads: list[int], tenants: list[Tenant], address: str
) -> None:
    lift_bounds(monkeypatch)
    with ExitStack() as stack:
        for _ in range(READERS):
            assert status_of(stack.enter_context(reader(address, tenants[0]))) == 200
        assert [asked(address, tenants[1]) for _ in range(3)] == [200] * 3


def test_so_it_is_beside_one_that_is_sent_a_file_made_first(
    monkeypatch: pytest.MonkeyPatch, tenants: list[Tenant], address: str, one_connection: Any
) -> None:
    def made(request: Any, _: Any, **options: Any) -> HttpResponseBase:
        return streaming.whole_export(request, lambda: CHUNK * 16, **options)

    monkeypatch.setattr(requests_api, "stream_export", made)
    with reader(address, tenants[0]) as client:
        assert status_of(client) == 200
        assert asked(address, tenants[1]) == 200


def test_one_caller_has_so_many_exports_at_once(
    reads: list[int], tenants: list[Tenant], address: str
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(reader(address, tenants[0])) for _ in range(READERS)]
        found = [status_of(each) for each in clients]
    most = streaming.CALLER_EXPORTS_MAX
    assert sorted(found) == [200] * most + [429] * (READERS - most)
    wait_until(lambda: not streaming.EXPORTS.counts(), "the slots of those who left")
    headers = {"authorization": f"Bearer {tenants[0].key}"}
    whole = httpx.get(address + tenants[0].export, headers=headers, timeout=60)
    assert len(whole.content) == CHUNKS * len(CHUNK)


def test_too_many_are_told_when_to_come_back(
    monkeypatch: pytest.MonkeyPatch, reads: list[int], tenants: list[Tenant], address: str
) -> None:
    monkeypatch.setattr(streaming, "CALLER_EXPORTS_MAX", 0)
    headers = {"authorization": f"Bearer {tenants[0].key}"}
    reply = httpx.get(address + tenants[0].export, headers=headers, timeout=60)
    assert reply.status_code == 429 and int(reply.headers["retry-after"]) > 0
    assert reply.json()["error"]["code"] == "too_many_exports"


def test_a_reader_that_reads_nothing_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, reads: list[int], tenants: list[Tenant], address: str
) -> None:
    monkeypatch.setattr(http_protocol, "WRITE_SECONDS", 0.2)
    with reader(address, tenants[0]) as client:
        assert status_of(client) == 200
        wait_until(lambda: not streaming.EXPORTS.counts(), "the reader's end")
        assert len(reads) < CHUNKS
        with pytest.raises(ConnectionResetError):
            while client.recv(2**16):
                pass


def test_gateways_have_connections_that_no_customer_takes(
    tenants: list[Tenant], address: str, one_connection: ConnectionPool
) -> None:
    with serving(internal_application) as internal, one_connection.connection():
        one_connection.timeout = 0.2
        assert asked(address, tenants[0]) == 503
        reply = httpx.get(internal + FEED, headers=bearer("gateway"), timeout=30)
        assert reply.status_code == 200, reply.text


def test_every_download_is_bounded() -> None:
    """What is sent as a file, or while it is made, goes through `control.api.streaming`."""
    found = {
        str(path.relative_to(ROOT))
        for folder in ("platform", "billing", "web")
        for path in (ROOT / folder).rglob("*.py")
        if SENT.search(path.read_text())
    }
    assert found == {
        "platform/control/api/streaming.py",
        "platform/control/mail/admin.py",  # one attachment, in memory, to operators
        "web/console/playground/views.py",  # no file; it ends with the answer of the gateway
    }
