"""Two organizations: one to test, and the outsider who must see nothing of it."""

import dataclasses
from collections.abc import Iterator
from ipaddress import ip_network
from types import SimpleNamespace

import pytest
from django.db import connections
from rest_framework.test import APIClient

from control.api_keys.models import ApiKey
from tests.fixtures.generated_client import GeneratedClient, generated
from tests.fixtures.name_server import NameServer, serving_names
from tests.fixtures.openapi import openapi_document
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.receiver import Receiver, receiving
from tests.fixtures.signing_in import NOW
from tests.fixtures.sso import CONSOLE


@pytest.fixture
def org(db: None) -> SeededOrganization:
    return make_organization("Acme")


@pytest.fixture
def outsider(db: None) -> SeededOrganization:
    return make_organization("Outsider")


@pytest.fixture
def key(org: SeededOrganization) -> ApiKey:
    return org.mint()[0]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratedClient]:
    """A client that a tool generates from the OpenAPI document: some five seconds, so that its
    tests share an xdist group, and with it a process."""
    with generated(openapi_document(), tmp_path_factory.mktemp("generated")) as client:
        yield client


@pytest.fixture
def api(org: SeededOrganization) -> APIClient:
    """The owner's session in the management API."""
    return org.api()


@pytest.fixture
def stranger(outsider: SeededOrganization) -> APIClient:
    """Another organization's owner."""
    client = APIClient()
    client.force_login(outsider.owner)
    return client


@pytest.fixture
def base(org: SeededOrganization) -> str:
    return f"/api/v1/organizations/{org.id}"


@pytest.fixture
def pooled(transactional_db: None) -> Iterator[None]:
    """For tests with threads: connections that the pool still holds end with the test."""
    yield
    for connection in connections.all():
        connection.close_pool()


@pytest.fixture
def still_codes(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of authenticator apps, which stands `at` a moment: no period ends between a code
    and its check."""
    clock = SimpleNamespace(at=NOW)
    still = SimpleNamespace(time=lambda: clock.at)
    monkeypatch.setattr("allauth.mfa.totp.internal.auth.time", still)
    return clock


@pytest.fixture
def local(settings) -> None:
    """Webhooks may go to this machine, without TLS."""
    loopback = (ip_network("127.0.0.0/8"),)
    settings.CONFIG = dataclasses.replace(
        settings.CONFIG, egress_allow_http=True, egress_allowed_networks=loopback
    )


@pytest.fixture
def receiver(local: None) -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def names(settings) -> Iterator[NameServer]:
    """A name server, and a platform that may reach providers on this machine."""
    with serving_names() as server:
        settings.CONFIG = dataclasses.replace(
            settings.CONFIG,
            console_url=CONSOLE,
            dns_servers=server.servers,
            egress_allow_http=True,
            egress_allowed_networks=(ip_network("127.0.0.0/8"),),
        )
        yield server
