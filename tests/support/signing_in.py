"""Browsers that sign in from wherever a test says, rightly and wrongly."""

import re
from typing import Any

from django.test import Client

PASSWORD = "correct horse battery staple"
HOME = "198.51.100.7"
NOW = 1_800_000_000.0
"""The beginning of a window of every allowance."""
LOGIN = "/accounts/login/"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36"


def browser(address: str = HOME) -> Client:
    """Return a browser that nobody knows, in a network."""
    return Client(REMOTE_ADDR=address, headers={"user-agent": CHROME})


def sign_in(client: Client, email: str, password: str = PASSWORD) -> Any:
    """Send the form; 302 is in."""
    return client.post(LOGIN, {"login": email, "password": password})


def signed_in(email: str, address: str = HOME) -> Client:
    """Return a browser in which a person is signed in."""
    client = browser(address)
    assert sign_in(client, email).status_code == 302
    return client


def is_in(client: Client) -> bool:
    """Tell whether somebody is signed in."""
    return "_auth_user_id" in client.session


def without_tokens(page: str) -> str:
    """Return a page without what differs for each reader: its token, and whom it is for."""
    return re.sub(r'name="csrfmiddlewaretoken" value="\w+"|[\w.]+@[\w.]+', "", page)
