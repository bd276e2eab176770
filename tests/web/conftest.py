"""A tenant with a catalog and usage, an outsider, and the console as browsers reach it."""

import dataclasses
from collections.abc import Iterator

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser
from pytest_django import DjangoDbBlocker

from control.api_keys.models import ApiKey
from control.api_keys.services import create_api_key
from control.pricing.models import Price
from tests.fixtures.browser import running_browser
from tests.fixtures.console import book, make_catalog, weeks_of_usage
from tests.fixtures.database import restore
from tests.fixtures.gateway_double import GatewayDouble, running_gateway
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.serving import serving
from tests.fixtures.shared_organization import SharedOrganization, shared_organization


@pytest.fixture(scope="module")
def shared(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[SharedOrganization]:
    """An organization that all tests of a module see; what each of them changes, it rolls back."""
    with django_db_blocker.unblock():
        try:
            with shared_organization() as shared:
                yield shared
        finally:
            restore()


@pytest.fixture
def org(db: None) -> SeededOrganization:
    return make_organization("Acme Research", "ada@acme.example")


@pytest.fixture
def outsider(db: None) -> SeededOrganization:
    return make_organization("Other GmbH", "eve@other.example")


@pytest.fixture
def prices(db: None) -> dict[str, Price]:
    return make_catalog()


@pytest.fixture
def key(org: SeededOrganization) -> ApiKey:
    return create_api_key(actor=org.actor, project=org.project, name="Backend")[0]


@pytest.fixture
def traffic(key: ApiKey, prices: dict[str, Price]) -> None:
    now = timezone.now()
    book(*weeks_of_usage([key], list(prices.values()), now, days=14, per_day=20), now=now)


@pytest.fixture
def member(org: SeededOrganization, client: Client) -> Client:
    """The owner's browser."""
    client.force_login(org.owner)
    return client


@pytest.fixture
def stranger(outsider: SeededOrganization) -> Client:
    """The browser of somebody from another organization."""
    client = Client()
    client.force_login(outsider.owner)
    return client


@pytest.fixture
def gateway(settings) -> Iterator[GatewayDouble]:
    with running_gateway() as double:
        settings.CONFIG = dataclasses.replace(settings.CONFIG, gateway_public_url=double.url)
        yield double


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright's loop must not be taken for one that Django's ORM would block; and it ends with
    # the module, since asynchronous tests have loops of their own.
    with pytest.MonkeyPatch.context() as patch, running_browser() as chromium:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield chromium


@pytest.fixture
def console(transactional_db: None, gateway: GatewayDouble) -> Iterator[str]:
    """The console's address, served by the real ASGI server."""
    from control.asgi import application

    with serving(application) as address:
        yield address
    connections.close_all()
