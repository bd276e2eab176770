"""The Billing page in real Chromium: it fits, it pays, and loads nothing from elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect

from control.outbox.services import deliver_due
from tests.fixtures.browser import (
    DESKTOP,
    LOOKS,
    WatchedPage,
    bring_session,
    watched_page,
    widest_overflow,
)
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import ask_top_up, in_place_of_stripe, save_card
from tests.simulation.stripe_double import StripeDouble
from web.console.base import address

Look = Callable[[dict[str, int], str], AbstractContextManager[WatchedPage]]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("billing_page"),
    pytest.mark.django_db(transaction=True),
]


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
            bring_session(watched.page, console, org.owner)
            watched.page.goto(console + address(org.organization, "billing"))
            yield watched

    return looking


@pytest.mark.full
@pytest.mark.parametrize(("window", "scheme"), LOOKS)
def test_it_fits_and_is_quiet(
    look: Look,
    org: SeededOrganization,
    stripe: StripeDouble,
    window: dict[str, int],
    scheme: str,
) -> None:
    save_card(org, stripe)
    save_card(org, stripe, "pm_usBankAccount_success")
    ask_top_up(org)
    deliver_due(now=timezone.now())
    with look(window, scheme) as watched:
        page = watched.page
        expect(page.get_by_role("heading", name="Add credits", exact=True)).to_be_visible()
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
        page.get_by_role("button", name="Add credits", exact=True).click()
        expect(page.get_by_text("is being charged")).to_be_visible()
        deliver_due(now=timezone.now())
        expect(page.get_by_text("of credit was added")).to_be_visible()
        assert stripe.succeeded()[0]["amount"] == 10_000
        assert not watched.complaints
