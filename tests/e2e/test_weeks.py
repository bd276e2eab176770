"""Weeks of a team lead and of a finance manager at the console: two tabs, a session that ends in
mid-form, a request that fails."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.fixtures.browser import DESKTOP, running_browser, watched_page
from tests.fixtures.mailbox import Mailbox
from tests.fixtures.newcomer import mint_key, sign_up, verify_address, wait_for_status
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

PASSWORD, SESSION = "a-long-enough-phrase", "penstock_session"
IN_FORCE_SECONDS_MAX = 60.0
STALE = "This was changed after you opened the page"
UNSAVED = "This was not saved, because you had to sign in again"


@contextmanager
def newcomer(browser: Browser, stack: Stack, email: str) -> Iterator[Page]:
    """Sign somebody up in a browser of their own."""
    with watched_page(browser, DESKTOP) as watched:
        sign_up(watched.page, stack.credentials["console_url"], email)
        verify_address(watched.page, stack, email)
        yield watched.page


def go_to(page: Page, section: str) -> None:
    page.get_by_role("navigation", name="Console").get_by_role("link", name=section).click()


def form(page: Page, name: str) -> Page:
    """Return the form of a name on the page."""
    return page.get_by_role("form", name=name)  # type: ignore[return-value]


def end_session(page: Page) -> None:
    """End the session as its time does: the browser forgets it."""
    page.context.clear_cookies(name=SESSION)


def sign_in(page: Page, email: str) -> None:
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def link_to(stack: Stack, email: str, part: str) -> str:
    mailbox = Mailbox(stack.credentials["admin_url"], **stack.credentials["operator"])
    link = mailbox.link(email, part)
    mailbox.close()
    return link


def test_a_team_leads_week(stack: Stack) -> None:
    lead = "lead@week.example"
    with running_browser() as browser, newcomer(browser, stack, lead) as page:
        secret = mint_key(page, "Backend")
        wait_for_status(stack.api_base, secret, 200, seconds=IN_FORCE_SECONDS_MAX)

        # A request fails, and the console says why.
        wrong = {"model": "nothing", "messages": [{"role": "user", "content": "Hello"}]}
        headers = {"authorization": f"Bearer {secret}"}
        reply = httpx.post(
            f"{stack.api_base}/chat/completions", json=wrong, headers=headers, timeout=60
        )
        assert reply.status_code == 404
        request_id = reply.headers["x-request-id"]
        go_to(page, "Requests")
        page.get_by_label("Outcome").select_option("failed")
        row = page.get_by_role("row", name="Unknown model")
        while not row.count():
            page.wait_for_timeout(250)
            page.reload()
        page.get_by_label("Request ID").fill(request_id)
        page.get_by_label("Request ID").press("Enter")
        expect(
            page.get_by_text("The model does not exist or you do not have access to it")
        ).to_be_visible()

        # Two tabs: the older one overwrites nothing, and keeps what was typed.
        go_to(page, "API keys")
        page.get_by_role("link", name="Manage Backend").click()
        page.wait_for_url("**/api-keys/key_*")
        older = page.context.new_page()
        older.goto(page.url)
        settings = form(page, "Settings")
        settings.get_by_label("Allowed networks").fill("127.0.0.0/8")
        settings.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Every gateway applies the change")).to_be_visible()
        late = form(older, "Settings")
        late.get_by_label("Name").fill("Backend of the team")
        late.get_by_role("button", name="Save").click()
        expect(older.get_by_text(STALE)).to_be_visible()
        expect(late.get_by_label("Name")).to_have_value("Backend of the team")
        expect(late.get_by_label("Allowed networks")).to_have_value("127.0.0.0/8")
        late.get_by_role("button", name="Save").click()
        expect(older.get_by_role("heading", level=1)).to_have_text("Backend of the team")
        expect(older.get_by_text("127.0.0.0/8").first).to_be_visible()
        older.close()

        # The session ends in mid-form: nothing is lost, and nothing is sent by itself.
        go_to(page, "Settings")
        page.get_by_role("main").get_by_role("link", name="Create project").click()
        page.wait_for_url("**/projects/new")
        page.get_by_label("Name").fill("Research of the winter")
        end_session(page)
        page.get_by_role("button", name="Create project").click()
        sign_in(page, lead)
        expect(page.get_by_text(UNSAVED)).to_be_visible()
        expect(page.get_by_label("Name")).to_have_value("Research of the winter")
        page.get_by_role("button", name="Create project").click()
        go_to(page, "Audit log")
        expect(page.get_by_text("Research of the winter").first).to_be_visible()


def test_a_finance_managers_week(stack: Stack) -> None:
    owner, books = "owner@week.example", "books@week.example"
    with (
        running_browser() as browser,
        newcomer(browser, stack, owner) as chief,
        newcomer(browser, stack, books) as page,
    ):
        go_to(chief, "Team")
        chief.get_by_label("Email address").fill(books)
        chief.get_by_label("Role").select_option("billing")
        chief.get_by_role("button", name="Send invitation").click()
        expect(chief.get_by_role("rowheader", name=books)).to_be_visible()
        invitation = link_to(stack, books, "/invitations/")
        page.goto(invitation)
        expect(page.get_by_text(owner).first).to_be_visible()
        page.get_by_role("button", name="Accept the invitation").click()
        page.wait_for_url("**/overview")

        # Somebody else changes the profile meanwhile.
        go_to(page, "Billing")
        page.get_by_role("link", name="Billing profile").first.click()
        page.wait_for_url("**/billing/profile")
        profile = page.url
        chief.goto(profile)
        chief.get_by_label("City").fill("Berlin")
        chief.get_by_role("button", name="Save profile").click()
        expect(chief.get_by_text("saved", exact=False).first).to_be_visible()
        page.get_by_label("Purchase order").fill("PO 4711")
        page.get_by_role("button", name="Save profile").click()
        expect(page.get_by_text(STALE)).to_be_visible()
        expect(page.get_by_label("Purchase order")).to_have_value("PO 4711")
        expect(page.get_by_label("City")).to_have_value("Berlin")

        # The session ends before it is saved again.
        end_session(page)
        page.get_by_role("button", name="Save profile").click()
        sign_in(page, books)
        expect(page.get_by_label("Purchase order")).to_have_value("PO 4711")
        page.get_by_role("button", name="Save profile").click()
        expect(page.get_by_text(STALE)).to_have_count(0)
        page.goto(profile)
        expect(page.get_by_label("City")).to_have_value("Berlin")
        expect(page.get_by_label("Purchase order")).to_have_value("PO 4711")

        # The used invitation says so.
        page.goto(invitation)
        expect(page.get_by_text("used", exact=False).first).to_be_visible()
