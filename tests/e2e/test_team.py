"""People come, change and go, each in a browser of their own: members of an organization, and
operators of the platform."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.fixtures.browser import DESKTOP, running_browser, watched_page
from tests.fixtures.mailbox import Mailbox
from tests.fixtures.newcomer import (
    mint_key,
    sign_up,
    verify_address,
    wait_for_status,
)
from tests.fixtures.operator import Operator
from tests.fixtures.second_gateway import SecondGateway
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

PASSWORD = "a-long-enough-phrase"
OWNER, GUEST = "chief@people.example", "guest@people.example"
BOOKKEEPER = "bookkeeper@people.example"
IN_FORCE_SECONDS_MAX = 60.0
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404


@contextmanager
def newcomer(browser: Browser, stack: Stack, email: str) -> Iterator[Page]:
    """Sign somebody up in a browser of their own."""
    with watched_page(browser, DESKTOP) as watched:
        sign_up(watched.page, stack.credentials["console_url"], email)
        verify_address(watched.page, stack, email)
        yield watched.page


def link_to(stack: Stack, email: str, part: str) -> str:
    mailbox = Mailbox(stack.credentials["admin_url"], **stack.credentials["operator"])
    link = mailbox.link(email, part)
    mailbox.close()
    return link


def go_to(page: Page, section: str) -> None:
    page.get_by_role("navigation", name="Console").get_by_role("link", name=section).click()


def manage(page: Page, email: str) -> None:
    """Open a member's page."""
    go_to(page, "Team")
    page.get_by_role("link", name=f"Manage {email}").click()


def test_a_member_is_invited_changed_and_removed_and_then_sees_and_may_call_nothing(
    simulated_stack: Stack, second_gateway: SecondGateway
) -> None:
    stack, doors = simulated_stack, [simulated_stack.api_base, second_gateway.api_base]
    with (
        running_browser() as browser,
        newcomer(browser, stack, OWNER) as owner,
        newcomer(browser, stack, GUEST) as guest,
    ):
        go_to(owner, "Team")
        owner.get_by_label("Email address").fill(GUEST)
        owner.get_by_label("Role").select_option("developer")
        owner.get_by_role("button", name="Send invitation").click()
        expect(owner.get_by_role("rowheader", name=GUEST)).to_be_visible()

        guest.goto(link_to(stack, GUEST, "/invitations/"))
        guest.get_by_role("button", name="Accept the invitation").click()
        guest.wait_for_url("**/overview")
        secret = mint_key(guest, "Guest's")
        for door in doors:
            wait_for_status(door, secret, 200, seconds=IN_FORCE_SECONDS_MAX)

        manage(owner, GUEST)
        owner.locator("#id_role").select_option("viewer")
        owner.get_by_role("button", name="Change role").click()
        go_to(guest, "Team")
        mine = guest.get_by_role("row").filter(has_text=GUEST)
        expect(mine.get_by_role("cell").first).to_have_text("Viewer")
        go_to(guest, "API keys")
        expect(guest.get_by_role("link", name="Create", exact=False)).to_have_count(0)

        manage(owner, GUEST)
        owner.get_by_label(f"Type {GUEST} to confirm").fill(GUEST)
        owner.get_by_role("button", name="Remove from").click()
        expect(owner.get_by_role("rowheader", name=GUEST)).to_have_count(0)
        seen, here = guest.context.request, guest.url
        assert seen.get(here).status == NOT_FOUND
        for door in doors:
            wait_for_status(door, secret, UNAUTHORIZED, seconds=IN_FORCE_SECONDS_MAX)


def test_an_operator_is_invited_to_keep_the_books_and_sees_no_form_of_the_catalog(
    simulated_stack: Stack,
) -> None:
    stack, admin_url = simulated_stack, simulated_stack.credentials["admin_url"]
    with (
        running_browser() as browser,
        watched_page(browser, DESKTOP) as owners,
        newcomer(browser, stack, BOOKKEEPER) as page,
    ):
        owner = Operator(owners.page, admin_url)
        owner.log_in(**stack.credentials["operator"])
        owners.page.goto(f"{admin_url}operators/operatorinvitation/add/")
        owners.page.get_by_label("Email").fill(BOOKKEEPER)
        owners.page.get_by_label("Role").select_option("finance")
        owners.page.get_by_role("button", name="Save", exact=True).click()
        expect(owners.page.get_by_text("successfully")).to_be_visible()

        page.goto(link_to(stack, BOOKKEEPER, "/operators/invitations/"))
        page.get_by_role("button", name="Accept the invitation").click()
        bookkeeper = Operator(page, admin_url)
        bookkeeper.prove_second_factor(BOOKKEEPER, PASSWORD)
        reply = page.goto(f"{admin_url}pricing/pricebook/add/")
        assert reply is not None
        assert reply.status == 200
        reply = page.goto(f"{admin_url}catalog/model/add/")
        assert reply is not None
        assert reply.status == FORBIDDEN
