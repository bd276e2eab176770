"""An operator's session in a browser, at a server of this very process."""

from django.test import Client
from django.utils import timezone
from playwright.sync_api import Page

from control.tenants.models import User


def sign_in(page: Page, console: str) -> None:
    """Give the browser the session of a new operator."""
    client = Client()
    operator = User.objects.create_superuser(f"op{timezone.now().timestamp()}@penstock.test")
    client.force_login(operator)
    cookie = client.cookies["penstock_session"]
    page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": console}])
