"""Domains, and who must use the provider."""

import pytest
from allauth.account.models import EmailAddress
from django.test import Client

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted
from control.organizations.deletion import delete_organization, preview_deletion
from control.organizations.members import remove_member
from control.permissions import Actor
from control.sso import provisioning, selectors
from control.sso.connections import (
    create_oidc_connection,
    create_saml_connection,
    create_scim_token,
    enforce,
    remove_provider,
    set_role_mapping,
    stop_enforcing,
)
from control.sso.domains import add_domain, remove_domain, verify_domain
from control.sso.models import SsoConnection, SsoDomain
from tests.fixtures.identity_providers import OidcProvider, SamlProvider
from tests.fixtures.name_server import NameServer
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.second_factor import let_time_pass
from tests.fixtures.sso import sign_in, verify, who

PASSWORD = "correct horse battery staple"
pytestmark = pytest.mark.integration


@pytest.fixture
def enforced(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider
) -> SsoConnection:
    acme.owner.set_password(PASSWORD)
    acme.owner.save()
    sign_in(Client(), oidc, acme.owner.email)
    enforce(actor=acme.actor, organization=acme.organization)
    connected.refresh_from_db()
    return connected


def log_in(client: Client, email: str):
    return client.post("/accounts/login/", {"login": email, "password": PASSWORD})


def add(org: SeededOrganization, name: str = "acme.example") -> SsoDomain:
    return add_domain(actor=org.actor, organization=org.organization, name=name)


def check(org: SeededOrganization, domain: SsoDomain) -> SsoDomain:
    return verify_domain(actor=org.actor, organization=org.organization, domain_id=domain.id)


def test_a_domain_is_whose_dns_says_so(
    org: SeededOrganization, outsider: SeededOrganization, names: NameServer
) -> None:
    ours, theirs = add(org), add(outsider)
    with pytest.raises(InvalidValue, match="no TXT record"):
        check(org, ours)
    names.texts[ours.record_name] = ["v=spf1 -all", ours.record_value]
    with pytest.raises(InvalidValue, match="something else"):
        check(outsider, theirs)
    assert check(org, ours).verified_at is not None
    names.texts[ours.record_name].append(theirs.record_value)
    with pytest.raises(Conflict, match="another organization"):
        check(outsider, theirs)


def test_dns_has_the_last_word(
    acme: SeededOrganization, outsider: SeededOrganization, names: NameServer
) -> None:
    """Whoever let a domain go does not keep it from who has it now, nor speaks of its addresses."""
    [ours] = acme.organization.sso_domains.all()
    theirs = add(outsider)
    names.texts[theirs.record_name] = [theirs.record_value]
    assert check(outsider, theirs).verified_at is not None
    ours.refresh_from_db()
    assert ours.verified_at is None
    assert selectors.verified_domains(acme.organization) == set()
    assert AuditEvent.objects.get(action="sso.domain_reassigned").organization_id == acme.id
    with pytest.raises(NotPermitted, match="not a verified domain"):
        provisioning.own_address(acme.organization, "grace@acme.example")


def test_a_silent_name_server_is_told(
    org: SeededOrganization, names: NameServer, monkeypatch
) -> None:
    monkeypatch.setattr("control.sso.domains.DNS_SECONDS", 0.2)
    monkeypatch.setattr(names, "answer", lambda wire: b"")
    with pytest.raises(InvalidValue, match="no answer"):
        check(org, add(org))


@pytest.mark.parametrize(
    "name", ["", "com", "localhost", "a..b", "-a.com", "bücher.de", "a.com/x", "1.2.3.4", "a b.com"]
)
def test_what_is_no_domain_is_refused(name: str, org: SeededOrganization) -> None:
    with pytest.raises(InvalidValue):
        add(org, name)


def test_it_is_enforced_after_an_owner_came_in_only(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    with pytest.raises(Conflict, match="with this provider once first"):
        enforce(actor=acme.actor, organization=acme.organization)
    sign_in(client, oidc, "grace@acme.example")
    with pytest.raises(Conflict, match="with this provider once first"):
        enforce(actor=acme.actor, organization=acme.organization)
    sign_in(client, oidc, acme.owner.email)
    assert enforce(actor=acme.actor, organization=acme.organization) == 2


def test_admins_set_up_neither_provider_nor_enforcing(
    acme: SeededOrganization, oidc: OidcProvider
) -> None:
    admin = acme.actor_of(acme.join("admin"))
    with pytest.raises(NotPermitted):
        create_oidc_connection(
            actor=admin, organization=acme.organization, issuer=oidc.url,
            client_id="x", client_secret="y",
        )  # fmt: skip
    for verb in (enforce, stop_enforcing, create_scim_token):
        with pytest.raises(NotPermitted):
            verb(actor=admin, organization=acme.organization)


def test_a_password_does_not_help_and_is_not_looked_at(
    enforced: SsoConnection, acme: SeededOrganization, client: Client
) -> None:
    for email in (acme.owner.email, "nobody@acme.example"):
        reply = log_in(client, email)
        assert "Addresses at acme.example must sign in with SSO" in reply.content.decode()
    assert who(client) is None


def test_no_other_way_helps_either(
    enforced: SsoConnection, acme: SeededOrganization, client: Client
) -> None:
    """By whatever way a person of the domain comes, `pre_login` is asked."""
    EmailAddress.objects.create(user=acme.owner, email="private@gmail.example", verified=True)
    reply = log_in(client, "private@gmail.example")
    assert reply["location"] == "/sso/"
    assert who(client) is None
    sent = {"email": "new@acme.example", "password1": "a-long-enough-phrase"}
    assert "must sign in with SSO" in client.post("/accounts/signup/", sent).content.decode()
    assert not User.objects.filter(email="new@acme.example").exists()


def test_another_address_is_no_way_around(
    enforced: SsoConnection, acme: SeededOrganization, client: Client
) -> None:
    """Who came in by the provider once cannot change the account's address and come by password."""
    acme.owner.email = "private@gmail.example"
    acme.owner.save()
    EmailAddress.objects.filter(user=acme.owner).update(email="private@gmail.example")
    assert log_in(client, "private@gmail.example")["location"] == "/sso/"


def test_another_organizations_provider_is_no_way_around(
    enforced: SsoConnection,
    acme: SeededOrganization,
    evil: SeededOrganization,
    oidc: OidcProvider,
    client: Client,
) -> None:
    """Nor can they come in by a provider of their own, of an address that it may speak of."""
    create_oidc_connection(
        actor=evil.actor, organization=evil.organization, issuer=oidc.url,
        client_id="evil", client_secret="evil",
    )  # fmt: skip
    acme.owner.email = "private@outsider.example"
    acme.owner.save()
    addresses = EmailAddress.objects.filter(user=acme.owner)
    addresses.update(email=acme.owner.email, verified=True)
    reply = sign_in(client, oidc, acme.owner.email, subject="private")
    assert reply["location"] == "/sso/"
    assert who(client) is None


def test_who_left_is_free(
    enforced: SsoConnection, acme: SeededOrganization, oidc: OidcProvider
) -> None:
    sign_in(Client(), oidc, "grace@acme.example")
    grace = User.objects.get(email="grace@acme.example")
    grace.email = "grace@gmail.example"
    grace.set_password(PASSWORD)
    grace.save()
    EmailAddress.objects.filter(user=grace).update(email=grace.email)
    client = Client()
    assert log_in(client, grace.email)["location"] == "/sso/"
    remove_member(actor=acme.actor, membership=acme.seat(grace))
    log_in(client, grace.email)
    assert who(client) == grace.id


def test_others_are_not_concerned(
    enforced: SsoConnection, acme: SeededOrganization, client: Client
) -> None:
    guest = acme.join("viewer")
    guest.set_password(PASSWORD)
    guest.save()
    assert log_in(client, guest.email).status_code == 302
    assert who(client) == guest.id


def test_sessions_end_when_it_is_enforced(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    sign_in(client, oidc, "grace@acme.example")
    sign_in(Client(), oidc, acme.owner.email)
    enforce(actor=acme.actor, organization=acme.organization)
    assert client.get(f"/{acme.id}/overview").status_code == 302


def test_the_operator_is_the_way_back_in(
    enforced: SsoConnection, acme: SeededOrganization, client: Client
) -> None:
    stop_enforcing(actor=Actor.for_system("operator"), organization=acme.organization)
    log_in(client, acme.owner.email)
    assert who(client) == acme.owner.id


def test_operators_come_in_by_themselves(enforced: SsoConnection, client: Client) -> None:
    root = User.objects.create_superuser("root@acme.example", PASSWORD)
    reply = log_in(client, root.email)
    assert reply.status_code == 302
    assert reply["location"] != "/sso/"


def test_an_owner_is_never_locked_out_by_a_change(
    enforced: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, saml: SamlProvider
) -> None:
    """Roles and groups make no owner less, and the provider that works stays the one."""
    set_role_mapping(
        actor=acme.actor, organization=acme.organization, role_claim="groups",
        role_map={"it": "viewer"}, default_role="",
    )  # fmt: skip
    client = Client()
    sign_in(client, oidc, acme.owner.email, groups=["it"])
    assert who(client) == acme.owner.id
    assert acme.seat(acme.owner).role == "owner"
    with pytest.raises(Conflict, match="make it optional"):
        create_saml_connection(
            actor=acme.actor, organization=acme.organization, metadata_url=saml.metadata_url,
            metadata="",
        )  # fmt: skip


def test_an_enforced_domain_and_provider_stay(
    enforced: SsoConnection, acme: SeededOrganization
) -> None:
    [domain] = acme.organization.sso_domains.all()
    with pytest.raises(Conflict):
        remove_domain(actor=acme.actor, organization=acme.organization, domain_id=domain.id)
    with pytest.raises(Conflict):
        remove_provider(actor=acme.actor, organization=acme.organization)


def test_the_end_of_the_organization_ends_it(
    enforced: SsoConnection,
    acme: SeededOrganization,
    outsider: SeededOrganization,
    names: NameServer,
    client: Client,
) -> None:
    token = create_scim_token(actor=acme.actor, organization=acme.organization)
    told = [each.words for each in preview_deletion(acme.organization)]
    assert "Members can no longer sign in with SSO." in told
    assert "The SCIM token stops working." in told
    delete_organization(actor=acme.actor, organization=acme.organization, name="Acme")
    scim = Client(headers={"authorization": f"Bearer {token}"})
    assert scim.get("/scim/v2/Users").status_code == 401
    assert client.get(f"/sso/{acme.id}/callback").status_code == 404
    begun = client.post("/sso/", {"email": acme.owner.email})
    assert "Nobody signs in with SSO" in begun.content.decode()
    log_in(client, acme.owner.email)
    assert who(client) == acme.owner.id
    verify(outsider, names, "acme.example")


def test_another_provider_starts_anew(
    connected: SsoConnection,
    acme: SeededOrganization,
    names: NameServer,
    oidc: OidcProvider,
    client: Client,
) -> None:
    sign_in(client, oidc, acme.owner.email)
    remove_provider(actor=acme.actor, organization=acme.organization)
    connected.refresh_from_db()
    assert (connected.is_tried, connected.sealed_secret, connected.provider) == (False, "", {})
    assert client.post("/sso/", {"email": acme.owner.email}).status_code == 200
    verify(acme, names, "second.example")


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("is_enforced", [True, False])
def test_an_account_form_asks_for_one_proof_after_a_sign_in_by_sso(
    request: pytest.FixtureRequest, acme: SeededOrganization, oidc: OidcProvider, is_enforced: bool
) -> None:
    """Where SSO is enforced the sign-in is the proof; elsewhere a password is asked for."""
    client = Client()
    acme.owner.set_password(PASSWORD)
    acme.owner.save()
    if is_enforced:
        request.getfixturevalue("enforced")
    sign_in(client, oidc, acme.owner.email)
    form = {"email": "second@elsewhere.example", "action_add": ""}
    if not is_enforced:
        where = client.post("/accounts/email/", form).headers["location"]
        assert where.startswith("/accounts/reauthenticate/")
        client.post(where, {"password": PASSWORD, "next": "/"})
    client.post("/accounts/email/", form)
    assert EmailAddress.objects.filter(email="second@elsewhere.example").delete()[0]
    let_time_pass(client, 3600)
    page = client.get("/accounts/2fa/totp/activate/").headers["location"]
    assert page.startswith("/sso/?next=" if is_enforced else "/accounts/reauthenticate/")
