"""What a stranger does at the console before anything else: sign up, verify, mint a key."""

import time

import httpx
from playwright.sync_api import Page

from tests.support.mailbox import Mailbox
from tests.support.stack import Stack


def sign_up(page: Page, console_url: str, email: str) -> None:
    page.goto(f"{console_url}/accounts/signup/")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill("a-long-enough-phrase")
    page.get_by_role("button", name="Create account").click()
    page.wait_for_url("**/accounts/confirm-email/")
    page.get_by_role("heading", name="Check your mail").wait_for()


def verify_address(page: Page, stack: Stack, email: str) -> None:
    """Follow the link in the mail, which this platform keeps in its mailbox."""
    mailbox = Mailbox(stack.credentials["admin_url"], **stack.credentials["operator"])
    link = mailbox.link(email, "/accounts/confirm-email/")
    mailbox.close()
    page.goto(link)
    page.get_by_role("button", name="Confirm", exact=True).click()
    page.wait_for_url("**/overview")


def mint_key(page: Page, name: str) -> str:
    """Make the first key; each page is there with its scripts before it is used."""
    page.get_by_role("navigation", name="Console").get_by_role("link", name="API keys").click()
    page.wait_for_url("**/keys")
    page.get_by_role("link", name="Create your first key").click()
    page.wait_for_url("**/keys/new")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create key", exact=True).click()
    return page.locator("#secret").inner_text()


def models_status(api_base: str, secret: str) -> int:
    return httpx.get(
        f"{api_base}/models", headers={"authorization": f"Bearer {secret}"}
    ).status_code


def wait_for_status(api_base: str, secret: str, wanted: int, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while models_status(api_base, secret) != wanted:
        assert time.monotonic() < deadline, f"the gateway never answered {wanted}"
        time.sleep(0.05)
