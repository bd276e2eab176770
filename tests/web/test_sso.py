"""The page of an organization's own sign-in: what owners, admins and others see and may do."""

import dataclasses
from collections.abc import Iterator
from ipaddress import ip_network

import pytest
from django.test import Client

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.organizations.models import Membership
from control.sso import selectors
from control.sso.domains import add_domain
from control.sso.models import ScimToken, SsoConnection, SsoDomain
from tests.fixtures.identity_providers import OidcProvider, running_oidc
from tests.fixtures.name_server import NameServer, serving_names
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.sso import sign_in
from web.console.base import address

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def oidc() -> Iterator[OidcProvider]:
    with running_oidc() as provider:
        yield provider


@pytest.fixture
def names(settings) -> Iterator[NameServer]:
    with serving_names() as server:
        settings.CONFIG = dataclasses.replace(
            settings.CONFIG,
            dns_servers=server.servers,
            egress_allow_http=True,
            egress_allowed_networks=(ip_network("127.0.0.0/8"),),
        )
        yield server


def at(org: SeededOrganization, name: str, *arguments: str) -> str:
    return address(org.organization, name, *arguments)


def joined(org: SeededOrganization, role: str) -> Client:
    user = User.objects.create_user(f"{role}@acme.example")
    Membership.objects.create(organization=org.organization, user=user, role=role)
    client = Client()
    client.force_login(user)
    return client


def domain_of(org: SeededOrganization) -> SsoDomain:
    [domain] = selectors.domains(org.organization)
    return domain


def state(org: SeededOrganization) -> tuple[object, ...]:
    return (
        list(SsoConnection.objects.filter(organization=org.organization).values()),
        list(SsoDomain.objects.values()),
        list(ScimToken.objects.values()),
    )


@pytest.fixture
def domain(org: SeededOrganization) -> SsoDomain:
    return add_domain(actor=org.actor, organization=org.organization, name="acme.example")


@pytest.mark.parametrize("name", ["sso_oidc", "sso_saml"])
def test_admins_do_not_choose_who_vouches_for_owners(
    name: str, org: SeededOrganization, domain: SsoDomain, names: NameServer, oidc: OidcProvider
) -> None:
    admin, before = joined(org, "admin"), state(org)
    assert admin.get(at(org, "sso")).status_code == 200
    form = {"issuer": oidc.url, "client_id": "x", "client_secret": "y"}
    assert admin.post(at(org, name), {**form, "metadata": "<a/>"}).status_code in (400, 403)
    assert state(org) == before


def test_an_owner_sets_it_up(
    member: Client, org: SeededOrganization, names: NameServer, oidc: OidcProvider
) -> None:
    member.post(at(org, "sso_domain_add"), {"name": "@Acme.Example"})
    domain = domain_of(org)
    page = member.get(at(org, "sso")).content.decode()
    assert domain.record_name in page
    assert domain.record_value in page
    failed = member.post(at(org, "sso_domain_verify", domain.id), follow=True)
    assert "There is no TXT record" in failed.content.decode()
    names.texts[domain.record_name] = [domain.record_value]
    member.post(at(org, "sso_domain_verify", domain.id))
    form = {"issuer": oidc.url, "client_id": "penstock", "client_secret": "s3cret"}
    assert member.post(at(org, "sso_oidc"), form).status_code == 302
    page = member.get(at(org, "sso")).content.decode()
    assert "s3cret" not in page
    assert "1 member affected" in page
    refused = member.post(at(org, "sso_enforce"), {"is_enforced": "1"}, follow=True)
    assert "with this provider once first" in refused.content.decode()
    sign_in(Client(), oidc, org.owner.email)
    member.post(at(org, "sso_enforce"), {"is_enforced": "1"})
    assert SsoConnection.objects.get().is_enforced
    page = member.get(at(org, "sso")).content.decode()
    for deed in ("sso.enforced", "sso.logged_in", "sso.connection_created", "sso.domain_verified"):
        assert deed in page
    member.post(at(org, "sso_enforce"), {"is_enforced": "0"})
    assert not SsoConnection.objects.get().is_enforced
    actions = set(
        AuditEvent.objects.filter(action__startswith="sso.").values_list("action", flat=True)
    )
    assert {"sso.domain_added", "sso.enforcement_stopped"} <= actions


def test_nothing_typed_is_lost(member: Client, org: SeededOrganization, names: NameServer) -> None:
    form = {"issuer": "https://10.0.0.1", "client_id": "my-client", "client_secret": "x"}
    reply = member.post(at(org, "sso_oidc"), form)
    assert reply.status_code == 400
    for typed in ("https://10.0.0.1", "my-client", "private, local or reserved"):
        assert typed in reply.content.decode()
    form = {"role_claim": "groups", "role_map": "Eng = developer\nIT = owner"}
    reply = member.post(at(org, "sso_roles"), form)
    assert reply.status_code == 400
    assert "IT = owner" in reply.content.decode()


def test_roles_are_mapped(member: Client, org: SeededOrganization) -> None:
    form = {"role_claim": "groups", "role_map": "Eng = Developer\n\nA = B = admin"}
    assert member.post(at(org, "sso_roles"), form).status_code == 302
    connection = SsoConnection.objects.get()
    assert connection.role_map == {"Eng": "developer", "A = B": "admin"}
    assert "A = B = admin" in member.get(at(org, "sso")).content.decode()


def test_a_token_is_shown_once(member: Client, org: SeededOrganization) -> None:
    reply = member.post(at(org, "scim_token"))
    assert reply.status_code == 201
    assert reply.headers["cache-control"].startswith("max-age=0")
    token = reply.context["token"]
    assert token in reply.content.decode()
    assert token not in member.get(at(org, "sso")).content.decode()
    assert token not in str(state(org))
    member.post(at(org, "scim_heir"), {"heir": ids_of_owner(org)})
    assert ScimToken.objects.get().heir_id == ids_of_owner(org)
    member.post(at(org, "scim_end"))
    assert not ScimToken.objects.exists()


def ids_of_owner(org: SeededOrganization) -> str:
    return Membership.objects.get(organization=org.organization, user=org.owner).id
