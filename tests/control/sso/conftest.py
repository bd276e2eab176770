"""Two organizations with domains that a real name server holds, and providers on the loopback."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache

from control.sso.connections import create_oidc_connection
from control.sso.models import SsoConnection
from tests.fixtures.identity_providers import (
    OidcProvider,
    SamlProvider,
    running_oidc,
    running_saml,
)
from tests.fixtures.name_server import NameServer
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.sso import verify


@pytest.fixture(autouse=True)
def fresh_counts() -> None:
    """No sign-in of another test counts."""
    cache.clear()


@pytest.fixture(scope="session")
def oidc() -> Iterator[OidcProvider]:
    with running_oidc() as provider:
        yield provider


@pytest.fixture(scope="session")
def saml() -> Iterator[SamlProvider]:
    with running_saml() as provider:
        yield provider


@pytest.fixture
def acme(org: SeededOrganization, names: NameServer) -> SeededOrganization:
    """The organization, with its domain verified."""
    verify(org, names, "acme.example")
    return org


@pytest.fixture
def evil(outsider: SeededOrganization, names: NameServer) -> SeededOrganization:
    """Another organization, with a domain of its own."""
    verify(outsider, names, "outsider.example")
    return outsider


@pytest.fixture
def connected(acme: SeededOrganization, oidc: OidcProvider) -> SsoConnection:
    """The organization, with an OpenID provider."""
    return create_oidc_connection(
        actor=acme.actor,
        organization=acme.organization,
        issuer=oidc.url,
        client_id="penstock",
        client_secret="s3cret",
    )
