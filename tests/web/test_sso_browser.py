"""Sign-in by real providers in real Chromium, and what SCIM ends there."""

import dataclasses
import json
from collections.abc import Iterator
from ipaddress import ip_network

import httpx
import pytest
from django.conf import LazySettings
from playwright.sync_api import Browser, Page, expect

from control.accounts.models import User
from control.api_keys.models import ApiKey
from control.api_keys.services import create_api_key
from control.organizations import selectors
from control.permissions import Actor
from control.sso.connections import (
    create_oidc_connection,
    create_saml_connection,
    create_scim_token,
)
from control.sso.domains import add_domain, verify_domain
from tests.fixtures.browser import (
    DESKTOP,
    LOOKS,
    WatchedPage,
    bring_session,
    watched_page,
    widest_overflow,
)
from tests.fixtures.identity_providers import running_oidc, running_saml
from tests.fixtures.name_server import serving_names
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("sso"),
    pytest.mark.django_db(transaction=True),
]
GRACE = "grace@acme.example"


@pytest.fixture
def watched(browser: Browser) -> Iterator[WatchedPage]:
    with watched_page(browser, DESKTOP) as page:
        yield page  # what the providers' own pages complain of is theirs


@pytest.fixture
def console_at_home(console: str, org: SeededOrganization, settings: LazySettings) -> Iterator[str]:
    """The console as `localhost`, of another site than the providers; the domain verified."""
    home = console.replace("127.0.0.1", "localhost")
    with serving_names() as names:
        settings.CONFIG = dataclasses.replace(
            settings.CONFIG,
            console_url=home,
            dns_servers=names.servers,
            egress_allow_http=True,
            egress_allowed_networks=(ip_network("127.0.0.0/8"),),
        )
        whose = {"actor": org.actor, "organization": org.organization}
        domain = add_domain(name="acme.example", **whose)
        names.texts[domain.record_name] = [domain.record_value]
        verify_domain(domain_id=domain.id, **whose)
        yield home


def ask(page: Page, console: str) -> None:
    page.goto(f"{console}/accounts/login/")
    page.get_by_role("link", name="Continue with SSO").click()
    page.get_by_label("Work email").fill(GRACE)
    page.get_by_role("button", name="Continue").click()


def test_somebody_comes_in_by_openid_and_scim_suspends_them(
    watched: WatchedPage, console_at_home: str, org: SeededOrganization, prices: dict
) -> None:
    page = watched.page
    whose = {"actor": org.actor, "organization": org.organization}
    page.route("https://**", lambda route: route.abort())  # the provider's page wants a stylesheet
    with running_oidc() as oidc:
        create_oidc_connection(issuer=oidc.url, client_id="penstock", client_secret="x", **whose)
        oidc.know("grace", email=GRACE, name="Grace Hopper")
        ask(page, console_at_home)
        page.get_by_placeholder("sub").fill("grace")
        page.get_by_role("button", name="Authorize").click()
        page.wait_for_url(f"{console_at_home}/{org.organization.id}/overview")
    user = User.objects.get(email=GRACE)
    seat = selectors.membership(user, org.organization.id)
    key, _ = create_api_key(actor=Actor.for_member(seat), project=org.project, name="Grace's")
    token = create_scim_token(**whose)
    base, headers = f"{console_at_home}/scim/v2", {"authorization": f"Bearer {token}"}
    scim = httpx.Client(headers=headers, timeout=60)
    made = scim.post(f"{base}/Users", json={"userName": GRACE})
    off = {"Operations": [{"op": "replace", "value": {"active": False}}]}
    off["schemas"] = ["urn:ietf:params:scim:api:messages:2.0:PatchOp"]
    reply = scim.patch(f"{base}/Users/{made.json()['id']}", content=json.dumps(off))
    scim.close()
    assert reply.status_code == 200, reply.text
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert ApiKey.objects.get(id=key.id).revoked_at is not None


@pytest.mark.full
def test_somebody_comes_in_by_saml_from_another_site(
    watched: WatchedPage, console_at_home: str, org: SeededOrganization, prices: dict
) -> None:
    page = watched.page
    with running_saml() as saml:
        create_saml_connection(
            actor=org.actor,
            organization=org.organization,
            metadata_url=saml.metadata_url,
            metadata="",
        )
        ask(page, console_at_home)
        page.get_by_label("Subject").fill("grace")
        page.get_by_label("Address").fill(GRACE)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Go back").click()
        page.wait_for_url(f"{console_at_home}/{org.organization.id}/overview")
    assert selectors.membership(User.objects.get(email=GRACE), org.organization.id)


@pytest.mark.full
@pytest.mark.parametrize(("window", "scheme"), LOOKS)
def test_the_page_fits_its_window(
    browser: Browser, console: str, org: SeededOrganization, window: dict[str, int], scheme: str
) -> None:
    with watched_page(browser, window, scheme) as watched:
        page = watched.page
        page.goto(f"{console}/sso/")
        assert widest_overflow(page) <= 0
        bring_session(page, console, org.owner)
        add_domain(actor=org.actor, organization=org.organization, name=f"{'long-' * 9}x.example")
        page.goto(console + address(org.organization, "sso"))
        assert widest_overflow(page) <= 0
        assert not watched.complaints
