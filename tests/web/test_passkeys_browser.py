"""A passkey in real Chromium, with a virtual authenticator."""

import dataclasses
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from playwright.sync_api import Browser, Page, expect

from tests.fixtures.browser import DESKTOP, LOOKS, WatchedPage, watched_page, widest_overflow
from tests.fixtures.organizations import PASSWORD, SeededOrganization

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("passkeys"),
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def named(console: str, settings) -> str:
    """The console by a name: browsers keep passkeys for names alone."""
    address = f"http://localhost:{urlsplit(console).port}"
    settings.CONFIG = dataclasses.replace(settings.CONFIG, console_url=address)
    settings.CSRF_TRUSTED_ORIGINS = [address]
    return address


@pytest.fixture
def watched(browser: Browser, named: str) -> Iterator[WatchedPage]:
    with watched_page(browser, DESKTOP) as page:
        with_authenticator(page.page)
        yield page
        assert not page.complaints
        assert page.hosts <= {named.removeprefix("http://")}


def with_authenticator(page: Page) -> None:
    """Give the browser a device that keeps passkeys and knows its holder."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def sign_in(page: Page, console: str, org: SeededOrganization) -> None:
    page.goto(f"{console}/")
    page.get_by_label("Email").fill(org.owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/overview")


def press(page: Page, name: str) -> None:
    """Press a button that is its page's script's, once that is there."""
    page.wait_for_load_state()
    page.get_by_role("button", name=name).click()


def add_passkey(page: Page, console: str) -> None:
    page.goto(f"{console}/accounts/2fa/")
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("Name").fill("Laptop")
    press(page, "Add the passkey")
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()


def test_a_passkey_is_added_and_opens_the_account(
    watched: WatchedPage, named: str, org: SeededOrganization
) -> None:
    page = watched.page
    sign_in(page, named, org)
    add_passkey(page, named)
    page.get_by_role("link", name="Done, I saved them").click()
    expect(page.get_by_role("rowheader", name="Laptop")).to_be_visible()
    page.context.clear_cookies()
    page.goto(f"{named}/accounts/login/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url("**/overview")
    assert Authenticator.objects.get(type="webauthn").last_used_at is not None


@pytest.mark.full
def test_a_passkey_is_the_second_factor_of_a_password(
    watched: WatchedPage, named: str, org: SeededOrganization
) -> None:
    page = watched.page
    sign_in(page, named, org)
    add_passkey(page, named)
    page.context.clear_cookies()
    page.goto(f"{named}/accounts/login/")
    page.get_by_label("Email").fill(org.owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    press(page, "Use a passkey")
    page.wait_for_url("**/overview")


@pytest.mark.full
def test_taking_it_away_asks_for_a_factor(
    watched: WatchedPage, named: str, org: SeededOrganization
) -> None:
    page = watched.page
    sign_in(page, named, org)
    add_passkey(page, named)
    page.context.clear_cookies()
    page.goto(f"{named}/accounts/login/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url("**/overview")
    page.goto(f"{named}/accounts/2fa/")
    page.get_by_role("link", name="Remove Laptop").click()
    expect(page.get_by_role("heading", name="Confirm your identity")).to_be_visible()
    expect(page.get_by_label("Password")).to_have_count(0)
    page.get_by_role("link", name="Use a security key").click()
    press(page, "Use a passkey")
    page.get_by_role("button", name="Remove the passkey").click()
    expect(page.get_by_text("Only your password protects")).to_be_visible()
    assert not Authenticator.objects.exists()


@pytest.mark.full
@pytest.mark.parametrize(("window", "scheme"), LOOKS)
def test_account_pages_fit_the_window(
    browser: Browser, named: str, org: SeededOrganization, window: dict[str, int], scheme: str
) -> None:
    EmailAddress.objects.create(user=org.owner, email=org.owner.email, verified=True, primary=True)
    with watched_page(browser, window, scheme) as watched:
        page = watched.page
        sign_in(page, named, org)
        for path in ("2fa/", "sessions/", "password/change/", "email/", "2fa/totp/activate/"):
            page.goto(f"{named}/accounts/{path}")
            assert widest_overflow(page) <= 0, path
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
        assert not watched.complaints
