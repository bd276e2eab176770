"""Sign-in by OpenID Connect, with a real provider."""

from itertools import product
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.test import Client

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.egress import fetch_json
from control.errors import InvalidValue
from control.organizations.models import Membership, Organization
from control.sso import oidc as flow
from control.sso.connections import create_oidc_connection, set_role_mapping, unlink_identity
from control.sso.domains import remove_domain
from control.sso.models import SsoConnection
from tests.fixtures.identity_providers import OidcProvider
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.routes import Route, routes
from tests.fixtures.sso import begin, come_back, sign_in, who

pytestmark = pytest.mark.integration


def refusal(reply) -> str:
    assert reply.status_code == 403
    return str(reply.context["reason"])


def test_a_newcomer_gets_an_account_and_a_seat(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    reply = sign_in(client, oidc, "grace@acme.example", name="Grace Hopper")
    user = User.objects.get(email="grace@acme.example")
    assert reply.status_code == 302
    assert who(client) == user.id
    assert user.name == "Grace Hopper"
    assert not user.has_usable_password()
    assert acme.seat(user).role == "developer"
    assert Organization.objects.filter(memberships__user=user).count() == 1
    assert AuditEvent.objects.filter(action="sso.logged_in", actor_id=user.id).exists()
    joined = AuditEvent.objects.get(action="member.joined")
    assert joined.details == {"email": f"⟦{user.id}⟧", "role": "developer"}


def test_a_member_comes_in_as_who_they_are(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    sign_in(client, oidc, "owner@acme.example")
    assert who(client) == acme.owner.id
    assert acme.seat(acme.owner).role == "owner"
    connected.refresh_from_db()
    assert connected.is_tried


def test_it_ends_where_it_was_meant_to(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    oidc.know("owner", email="owner@acme.example")
    ours, theirs = f"/{acme.id}/team", "https://evil.example/"
    for wanted, found in ((ours, ours), (theirs, "/"), ("//evil.example", "/")):
        address = begin(client, "owner@acme.example", next=wanted)
        assert come_back(client, oidc.sign_in(address, "owner"))["location"] == found


def test_the_question_is_bound_to_browser_and_answer(
    connected: SsoConnection, client: Client
) -> None:
    query = parse_qs(urlsplit(begin(client, "a@acme.example")).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"][0].endswith(f"/sso/{connected.organization_id}/callback")
    assert {"state", "nonce", "code_challenge"} <= query.keys()
    assert query["login_hint"] == ["a@acme.example"]


def test_an_answer_counts_in_the_browser_that_asked_only_and_once(
    connected: SsoConnection, oidc: OidcProvider, client: Client
) -> None:
    oidc.know("grace", email="grace@acme.example")
    answer = oidc.sign_in(begin(client, "grace@acme.example"), "grace")
    victim = Client()
    assert "Start again" in refusal(come_back(victim, answer))
    begin(victim, "victim@acme.example")
    assert "another sign-in" in refusal(come_back(victim, answer))
    assert come_back(client, answer).status_code == 302
    assert "Start again" in refusal(come_back(client, answer))


@pytest.mark.parametrize("route", routes("sso"), ids=lambda each: each.template)
def test_nothing_opens_without_a_sign_in_that_was_begun(
    route: Route, connected: SsoConnection, acme: SeededOrganization, client: Client
) -> None:
    sent = {"code": "x", "state": "", "SAMLResponse": "eDw=", "again": "1"}
    for organization_id in (acme.id, "org_nobody"):
        path = route.path({"organization_id": organization_id})
        for method in ("get", "post", "put", "delete"):
            reply = getattr(client, method)(path, sent)
            found = (200, 405) if route.template == "sso/" else (403, 404, 405)
            assert reply.status_code in found, (method, path)
            assert who(client) is None


def test_another_organizations_provider_cannot_speak_of_our_addresses(
    connected: SsoConnection, evil: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    create_oidc_connection(
        actor=evil.actor, organization=evil.organization, issuer=oidc.url,
        client_id="evil", client_secret="evil",
    )  # fmt: skip
    oidc.know("mallory", email="owner@acme.example", email_verified=True)
    answer = oidc.sign_in(begin(client, "mallory@outsider.example"), "mallory")
    assert "not a verified domain" in refusal(come_back(client, answer))
    assert who(client) is None
    deed = AuditEvent.objects.get(action="sso.login_denied")
    assert deed.organization_id == evil.id


def test_an_answer_of_one_organization_does_not_count_for_another(
    connected: SsoConnection, evil: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    create_oidc_connection(
        actor=evil.actor, organization=evil.organization, issuer=oidc.url,
        client_id="evil", client_secret="evil",
    )  # fmt: skip
    oidc.know("mallory", email="owner@acme.example")
    answer = oidc.sign_in(begin(client, "mallory@outsider.example"), "mallory")
    moved = answer.replace(evil.id, connected.organization_id)
    assert "Start again" in refusal(come_back(client, moved))


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"email": "x@outsider.example"}, "not a verified domain"),
        ({"email": "x@sub.acme.example"}, "not a verified domain"),
        ({"email": "x@acme.example.evil.example"}, "not a verified domain"),
        ({"email": "x@acme.example", "email_verified": False}, "did not verify"),
        ({"email": "x@evil.example@acme.example"}, "email address"),
        ({"email": "x@\u0430cme.example"}, "email address"),
        ({"email": None}, "email address"),
        ({"email": ["x@acme.example"]}, "email address"),
    ],
)
def test_who_is_not_vouched_for_stays_out(
    claims: dict, words: str, connected: SsoConnection, oidc: OidcProvider, client: Client
) -> None:
    oidc.know("x", **claims)
    answer = oidc.sign_in(begin(client, "x@acme.example"), "x")
    assert words in refusal(come_back(client, answer))
    assert who(client) is None


def test_a_person_stays_the_same_subject(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    sign_in(client, oidc, "owner@acme.example", subject="one")
    mallory = Client()
    oidc.know("two", email="owner@acme.example")
    answer = oidc.sign_in(begin(mallory, "owner@acme.example"), "two")
    assert "as another person" in refusal(come_back(mallory, answer))
    unlink_identity(actor=acme.actor, organization=acme.organization, user=acme.owner)
    assert sign_in(mallory, oidc, "owner@acme.example", subject="two").status_code == 302


def test_operators_are_never_let_in(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    operator = User.objects.create_superuser("root@acme.example", "x")
    assert "cannot sign in to this account" in refusal(sign_in(client, oidc, operator.email))
    sign_in(client, oidc, "owner@acme.example")
    acme.owner.operator_role = "viewer"
    acme.owner.save()
    again = Client()
    assert "cannot sign in to this account" in refusal(sign_in(again, oidc, "owner@acme.example"))
    assert who(again) is None


def test_who_waited_in_an_account_with_a_strange_address_is_out(
    connected: SsoConnection, oidc: OidcProvider, client: Client
) -> None:
    """Somebody made an account with the address of a person who came later, and never proved it."""
    squatter = Client()
    sent = {"email": "late@acme.example", "password1": "a-long-enough-phrase"}
    squatter.post("/accounts/signup/", sent)
    late = User.objects.get(email="late@acme.example")
    EmailAddress.objects.create(user=late, email="squatter@evil.example", verified=True)
    Authenticator.objects.create(user=late, type="totp", data={"secret": "theirs"})
    squatter.force_login(late)
    sign_in(client, oidc, "late@acme.example")
    assert who(client) == late.id
    assert squatter.get("/", follow=True).redirect_chain[-1][0].startswith("/accounts/login/")
    late.refresh_from_db()
    assert not late.has_usable_password()
    assert not Authenticator.objects.filter(user=late).exists()
    kept = EmailAddress.objects.filter(user=late).values_list("email", "verified")
    assert list(kept) == [("late@acme.example", True)]


def test_a_second_factor_is_asked_for_all_the_same(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    """Whoever runs the provider does not so come into what else the account opens."""
    Authenticator.objects.create(user=acme.owner, type="totp", data={"secret": "x"})
    EmailAddress.objects.create(user=acme.owner, email=acme.owner.email, verified=True)
    reply = sign_in(client, oidc, acme.owner.email)
    assert reply["location"].startswith("/accounts/2fa/authenticate/")
    assert who(client) is None


def test_an_account_with_another_address_is_not_handed_over(
    connected: SsoConnection, evil: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    """Nor does a person get two accounts by an address that one of them holds already."""
    EmailAddress.objects.create(user=evil.owner, email="grace@acme.example", verified=True)
    assert "another address" in refusal(sign_in(client, oidc, "grace@acme.example"))
    assert who(client) is None


def test_who_has_another_address_now_is_not_the_providers(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    sign_in(Client(), oidc, acme.owner.email, subject="one")
    acme.owner.email = "private@gmail.example"
    acme.owner.save()
    assert "not a verified domain" in refusal(
        sign_in(client, oidc, "owner@acme.example", subject="one")
    )
    assert who(client) is None


def test_so_many_sign_ins_a_minute(client: Client, connected: SsoConnection, settings) -> None:
    assert settings.ACCOUNT_RATE_LIMITS["sso"] == "120/m/ip"
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"sso": "3/h/ip"}
    sent = {"email": "grace@acme.example"}
    answers = [client.post("/sso/", sent).status_code for _ in range(5)]
    assert answers == [200, 200, 200, 429, 429]


def test_roles_follow_the_map(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    set_role_mapping(
        actor=acme.actor, organization=acme.organization, role_claim="groups",
        role_map={"eng": "developer", "it": "admin"}, default_role="",
    )  # fmt: skip
    email = "grace@acme.example"
    assert "give you a role" in refusal(sign_in(client, oidc, email, groups=["sales"]))
    assert not User.objects.filter(email=email).exists()
    for groups, role in ((["eng", "it"], "admin"), (["eng"], "developer"), ("it", "admin")):
        sign_in(client, oidc, email, groups=groups)
        assert Membership.objects.get(user__email=email).role == role
    assert "give you a role" in refusal(sign_in(client, oidc, email, groups=["owner", "OWNER"]))
    sign_in(client, oidc, "owner@acme.example", groups=["eng"])
    assert acme.seat(acme.owner).role == "owner"


def test_a_lost_domain_ends_sign_in(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    address = begin(client, "owner@acme.example")
    [domain] = acme.organization.sso_domains.all()
    remove_domain(actor=acme.actor, organization=acme.organization, domain_id=domain.id)
    oidc.know("owner", email="owner@acme.example")
    assert "not a verified domain" in refusal(come_back(client, oidc.sign_in(address, "owner")))


def test_the_page_says_nothing_of_accounts(connected: SsoConnection, client: Client) -> None:
    known, unknown = (
        client.post("/sso/", {"email": f"{name}@acme.example"}).content.decode()
        for name in ("owner", "nobody")
    )
    assert all("Redirecting to your identity provider" in page for page in (known, unknown))
    elsewhere = client.post("/sso/", {"email": "owner@outsider.example"})
    assert "Nobody signs in with SSO at outsider.example" in elsewhere.content.decode()


@pytest.mark.parametrize(
    "issuer",
    [
        "http://10.0.0.1",
        "http://169.254.169.254/latest",
        "http://localhost:1",
        "ftp://acme.okta.com",
        "https://user:pw@acme.okta.com",
        "http://[::1]",
        "nonsense",
        "",
    ],
)
def test_an_internal_or_broken_issuer_is_refused(issuer: str, acme: SeededOrganization) -> None:
    with pytest.raises(InvalidValue):
        create_oidc_connection(
            actor=acme.actor, organization=acme.organization, issuer=issuer,
            client_id="x", client_secret="y",
        )  # fmt: skip


def test_an_issuer_that_calls_itself_otherwise_is_refused(
    oidc: OidcProvider, acme: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that speaks for the tenants of all the world."""
    found = flow.discover(oidc.url) | {"issuer": "https://login.example/{tenantid}/v2.0"}
    monkeypatch.setattr(flow, "fetch_json", lambda url: found)
    with pytest.raises(InvalidValue, match="issuer is"):
        flow.discover("https://login.example/common/v2.0")


def test_an_issuer_that_leads_to_strange_places_is_refused(
    oidc: OidcProvider, acme: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fetch_json(f"{oidc.url}{flow.WELL_KNOWN}")
    monkeypatch.setattr(flow, "fetch_json", lambda url: found)
    flow.discover(oidc.url)
    strange = ("http://169.254.169.254/x", "javascript:alert(1)", 7)
    for name, url in product([*flow.ENDPOINTS, "userinfo_endpoint"], strange):
        monkeypatch.setattr(flow, "fetch_json", lambda _, changed=found | {name: url}: changed)
        with pytest.raises(InvalidValue):
            flow.discover(oidc.url)
            pytest.fail(f"{name} may be {url}")


def test_the_secret_is_kept_sealed_and_stays(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider
) -> None:
    assert "s3cret" not in connected.sealed_secret
    again = create_oidc_connection(
        actor=acme.actor, organization=acme.organization, issuer=oidc.url,
        client_id="other", client_secret="",
    )  # fmt: skip
    assert again.sealed_secret == connected.sealed_secret
    assert "s3cret" not in str(list(AuditEvent.objects.values_list("details", flat=True)))


def test_google_vouches_for_its_workspaces_only(connected: SsoConnection) -> None:
    connected.issuer = flow.GOOGLE
    claims = {"sub": "1", "email": "ada@acme.example", "email_verified": True}
    with pytest.raises(Exception, match="private Google account"):
        flow.read_claims(connected, claims)
    assert flow.read_claims(connected, {**claims, "hd": "acme.example"}).email == "ada@acme.example"
