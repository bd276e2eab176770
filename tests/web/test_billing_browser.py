"""The Billing page in real Chromium: it fits, it pays, and loads nothing from elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from billing.simulation.stripe_double import StripeDouble
from control.outbox.services import deliver_due
from tests.fixtures.browser import DESKTOP, PHONE, WatchedPage, watched_page, widest_overflow
from tests.fixtures.organizations import PASSWORD, SeededOrganization
from tests.fixtures.paying import ask_top_up, in_place_of_stripe, save_card
from web.console.page import address

Look = Callable[[dict[str, int], str], AbstractContextManager[WatchedPage]]

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def stripe(settings, monkeypatch: pytest.MonkeyPatch, console: str) -> Iterator[StripeDouble]:
    with in_place_of_stripe(settings, monkeypatch) as double:
        yield double


@pytest.fixture
def look(browser: Browser, console: str, org: SeededOrganization) -> Look:
    """Open the Billing page as the owner, in a window and a colour scheme."""

    @contextmanager
    def looking(viewport: dict[str, int], scheme: str) -> Iterator[WatchedPage]:
        with watched_page(browser, viewport, scheme) as watched:
            sign_in(watched.page, console, org)
            watched.page.goto(console + address(org.organization, "billing"))
            yield watched

    return looking


def sign_in(page: Page, console: str, org: SeededOrganization) -> None:
    page.goto(f"{console}/")
    page.get_by_label("Email").fill(org.owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/overview")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_and_is_quiet(
    look: Look, org: SeededOrganization, stripe: StripeDouble, width: int, scheme: str
) -> None:
    save_card(org, stripe)
    save_card(org, stripe, "pm_usBankAccount_success")
    ask_top_up(org)
    deliver_due(now=timezone.now())
    with look({390: PHONE, 1440: DESKTOP}[width], scheme) as watched:
        page = watched.page
        expect(page.get_by_role("heading", name="Top up", exact=True)).to_be_visible()
        assert widest_overflow(page) <= 0
        page.get_by_role("link", name="Payments").click()
        expect(page.get_by_text("Paid", exact=True)).to_be_visible()
        assert widest_overflow(page) <= 0
        assert not watched.complaints
        assert len(watched.hosts) == 1


def test_a_top_up_with_a_saved_card_says_when_it_is_paid(
    look: Look, org: SeededOrganization, stripe: StripeDouble
) -> None:
    save_card(org, stripe)
    with look(DESKTOP, "light") as watched:
        page = watched.page
        page.get_by_label("$100").check()
        page.get_by_role("button", name="Top up", exact=True).click()
        expect(page.get_by_text("Being charged")).to_be_visible()
        deliver_due(now=timezone.now())
        expect(page.get_by_text("of credit are yours")).to_be_visible()
        assert stripe.succeeded()[0]["amount"] == 10_000
        assert not watched.complaints
