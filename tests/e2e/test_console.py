"""The console as a stranger uses it: sign up, mint a key, chat, see what it cost, revoke."""

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.browser import DESKTOP, running_browser, watched_page
from tests.fixtures.newcomer import mint_key, sign_up, verify_address, wait_for_status
from tests.fixtures.stack import Stack

pytestmark = pytest.mark.e2e

STRANGER = "stranger@new.example"
BOOKED_SECONDS_MAX = IN_FORCE_SECONDS_MAX = 60


def chat(page: Page, words: str) -> str:
    """Ask the playground; return the charge it shows under the answer."""
    page.get_by_role("navigation", name="Console").get_by_role("link", name="Playground").click()
    page.get_by_label("Message").fill(words)
    page.keyboard.press("Enter")
    charge = page.locator("[data-meters] [data-charge]")
    expect(charge).to_be_visible()
    return charge.inner_text()


def wait_for_usage(page: Page) -> None:
    """Open the usage page again until billing has booked the request."""
    page.get_by_role("navigation", name="Console").get_by_role("link", name="Usage").click()
    deadline = time.monotonic() + BOOKED_SECONDS_MAX
    while not page.locator("[data-chart]").count():
        assert time.monotonic() < deadline, "the request is not booked"
        page.wait_for_timeout(250)
        page.reload()


def revoke_key(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Console").get_by_role("link", name="API keys").click()
    page.get_by_role("link", name=f"Manage {name}").click()
    page.get_by_label(f"Type “{name}” to confirm").fill(name)
    page.get_by_role("button", name="Revoke this key").click()
    expect(page.get_by_text("is revoked")).to_be_visible()


@pytest.mark.full
def test_sign_up_key_chat_usage_revoke(stack: Stack) -> None:
    with running_browser() as browser, watched_page(browser, DESKTOP) as watched:
        page = watched.page
        sign_up(page, stack.credentials["console_url"], STRANGER)
        verify_address(page, stack, STRANGER)
        secret = mint_key(page, "Production")
        wait_for_status(stack.api_base, secret, 200, seconds=IN_FORCE_SECONDS_MAX)
        charge = chat(page, "What is Penstock?")
        assert re.fullmatch(r"\$0\.0*[1-9]\d*", charge)
        wait_for_usage(page)
        expect(page.locator("tfoot")).to_contain_text(charge)
        page.get_by_role("link", name="1 request", exact=True).click()
        page.get_by_role("table").get_by_role("link").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(charge)
        revoke_key(page, "Production")
        wait_for_status(stack.api_base, secret, 401, seconds=IN_FORCE_SECONDS_MAX)
        assert not watched.complaints
