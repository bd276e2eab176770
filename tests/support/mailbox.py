"""The mailbox page of a running platform, as an operator reads it."""

import re
import time
from html import unescape

import httpx

from tests.support.second_factor import sign_in_operator

SECONDS_MAX = 20.0


class Mailbox:
    """An operator who is logged in to the admin and looks for mails."""

    def __init__(self, admin_url: str, *, email: str, password: str) -> None:
        self._letters = f"{admin_url}mail/letter/"
        self._client = httpx.Client(follow_redirects=True)
        console = admin_url.removesuffix("/admin/")
        sign_in_operator(self._client, console, email=email, password=password)

    def link(self, to: str, part: str) -> str:
        """Return the link with a part such as `/confirm-email/` in the newest mail to somebody."""
        deadline = time.monotonic() + SECONDS_MAX
        while (found := self._find(to, part)) is None:
            assert time.monotonic() < deadline, f"no mail with {part} came to {to}"
            time.sleep(0.2)
        return found

    def subjects(self, to: str) -> list[str]:
        """Return what the list says of the mails to somebody, the newest first."""
        page = unescape(self._client.get(self._letters, params={"q": to}).text)
        return re.findall(r"/admin/mail/letter/\d+/change/[^>]*>([^<]*)<", page)

    def close(self) -> None:
        self._client.close()

    def _find(self, to: str, part: str) -> str | None:
        page = self._client.get(self._letters, params={"q": to}).text
        for number in re.findall(r"/admin/mail/letter/(\d+)/change/", page):
            letter = unescape(self._client.get(f"{self._letters}{number}/change/").text)
            if link := re.search(rf"https?://[^\s\"'<>]*{re.escape(part)}[^\s\"'<>]*", letter):
                return link.group()
        return None
