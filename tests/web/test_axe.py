"""axe finds nothing on any page of the console and of accounts, taken from the URL table: a new one
is looked at without being named. `make test` looks at every fourth. In the dark only colours are
another."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone
from playwright.sync_api import Browser, Page

from control.api_keys.models import ApiKey
from control.organizations.members import invite_member
from control.pricing.models import Price
from tests.fixtures.browser import DESKTOP, watched_page
from tests.fixtures.console import book, weeks_of_usage
from tests.fixtures.furnished import furnish
from tests.fixtures.organizations import PASSWORD, SeededOrganization
from tests.fixtures.paying import in_place_of_stripe
from tests.fixtures.routes import routes
from web.console.base import SECTIONS, address

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("axe"),
    pytest.mark.django_db(transaction=True),
]
FOR_MEMBERS = ("console", "organizations", "accounts", "invitations", "operators")
FOR_ANYBODY = ("accounts",)
LEAVES = {"/accounts/logout/"}
"""What ends the session, looked at last."""
AXE = Axe()
EVERYTHING: dict[str, Any] = {"resultTypes": ["violations"]}
COLOURS = EVERYTHING | {"runOnly": ["color-contrast", "link-in-text-block"]}


@pytest.fixture
def ids(
    org: SeededOrganization, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """What addresses ask for, of an organization with one of most things and days of usage."""
    with in_place_of_stripe(settings, monkeypatch) as double:
        found = furnish(org, double)
        now, key = timezone.now(), ApiKey.objects.get(id=found["key_id"])
        book(*weeks_of_usage([key], list(Price.objects.all()), now, days=3, per_day=9), now=now)
        _, secret = invite_member(
            actor=org.actor, organization=org.organization, email="y@example.com", role="viewer"
        )
        more = {
            "event_id": found["request_id"],
            "payment_id": found["purchase_id"],
            "secret": secret,
        }
        yield found | more


class Round(NamedTuple):
    """A look at pages: in which colours, and at every which one."""

    scheme: str
    step: int = 1


ROUNDS = (
    pytest.param(Round("light", 4), id="quarter"),
    pytest.param(Round("light"), id="light", marks=pytest.mark.full),
    pytest.param(Round("dark"), id="dark", marks=pytest.mark.full),
)


@pytest.fixture(params=ROUNDS)
def around(request: pytest.FixtureRequest) -> Round:
    found: Round = request.param
    return found


def violations(page: Page, around: Round) -> list[str]:
    """Return what axe finds: the rule, and where."""
    options = EVERYTHING if around.scheme == "light" else COLOURS
    found = AXE.run(page, options=options).response["violations"]
    return [f"{each['id']}: {node['html']}" for each in found for node in each["nodes"]]


def look(
    page: Page, console: str, rooms: tuple[str, ...], ids: dict[str, str], around: Round
) -> dict[str, Any]:
    """Return what axe finds on each page of some rooms; what is a file, or leads to a page looked
    at already, is none."""
    found: dict[str, Any] = {}
    paths = {route.path(ids) for route in routes(*rooms)}
    for path in sorted(paths, key=lambda path: (path in LEAVES, path))[:: around.step]:
        reply = page.request.get(console + path)
        where = reply.url.partition("?")[0]
        is_page = reply.headers.get("content-type", "").startswith("text/html")
        if is_page and where not in found and reply.status != 405:
            page.goto(reply.url)
            found[where] = violations(page, around)
    return found


def told(found: dict[str, list[str]]) -> str:
    return "\n".join(f"{url}: {each}" for url, several in found.items() for each in several)


def sign_in(page: Page, console: str, org: SeededOrganization) -> None:
    page.goto(f"{console}/")
    page.get_by_label("Email").fill(org.owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_no_page_of_a_member_has_a_violation(
    browser: Browser, console: str, org: SeededOrganization, ids: dict[str, str], around: Round
) -> None:
    with watched_page(browser, DESKTOP, around.scheme) as watched:
        page = watched.page
        sign_in(page, console, org)
        page.wait_for_url("**/overview")
        page.goto(f"{console}/accounts/reauthenticate/?next=/accounts/2fa/")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url("**/accounts/2fa/")
        found = look(page, console, FOR_MEMBERS, ids, around)
    assert told(found) == ""
    assert around.step > 1 or {urlsplit(url).path for url in found} >= {
        *(address(org.organization, section) for section in SECTIONS),
        "/accounts/2fa/totp/activate/", "/accounts/2fa/webauthn/add/", "/accounts/sessions/",
        f"/invitations/{ids['secret']}", f"/operators/invitations/{ids['secret']}",
    }  # fmt: skip


@pytest.mark.parametrize("around", ROUNDS[1:], indirect=True)
def test_no_page_of_a_second_factor_has_a_violation(
    browser: Browser, console: str, org: SeededOrganization, ids: dict[str, str], around: Round
) -> None:
    TOTP.activate(org.owner, generate_totp_secret())
    codes = RecoveryCodes.activate(org.owner).get_unused_codes()
    with watched_page(browser, DESKTOP, around.scheme) as watched:
        page = watched.page
        sign_in(page, console, org)
        page.wait_for_url("**/accounts/2fa/authenticate/**")
        found = {page.url: violations(page, around)}
        page.get_by_label("Code").fill(codes[0])
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url("**/overview")
        page.goto(f"{console}/accounts/2fa/reauthenticate/?next=/accounts/2fa/")
        found |= {page.url: violations(page, around)}
        page.get_by_label("Code").fill(codes[1])
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url("**/accounts/2fa/")
        found |= look(page, console, ("accounts",), ids, around)
    assert told(found) == ""
    assert around.step > 1 or {urlsplit(url).path for url in found} >= {
        "/accounts/2fa/authenticate/", "/accounts/2fa/recovery-codes/", "/accounts/2fa/",
    }  # fmt: skip


def test_no_page_of_anybody_has_a_violation(
    browser: Browser, console: str, ids: dict[str, str], around: Round
) -> None:
    with watched_page(browser, DESKTOP, around.scheme) as watched:
        found = look(watched.page, console, FOR_ANYBODY, ids, around)
    assert told(found) == ""
    assert around.step > 1 or {urlsplit(url).path for url in found} >= {
        "/accounts/login/", "/accounts/signup/", "/accounts/password/reset/",
        "/accounts/confirm-email/x/",
    }  # fmt: skip
