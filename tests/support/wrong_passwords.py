"""Wrong passwords against a console that runs, from many addresses of the loopback, and people who
sign in meanwhile."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

PASSWORD = "correct horse battery staple"
CSRF = "x" * 32
"""Cookie and field must agree; any will do."""
PEOPLE = """\
import json
from allauth.account.models import EmailAddress
from control.tenants.models import User
for email in json.loads({emails!r}):
    user = User.objects.create_user(email, {password!r})
    EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)
"""


def script_of_people(emails: Iterable[str]) -> str:
    """Return what makes accounts, for `manage shell`."""
    return PEOPLE.format(emails=json.dumps(list(emails)), password=PASSWORD)


@dataclass
class Browser:
    """What keeps its device's cookie, at an address."""

    address: str
    device: str = ""

    async def sign_in(self, console: str, email: str, password: str = PASSWORD) -> int:
        """Send the form on a connection of its own; return the status, 302 where it is right."""
        parts = urlsplit(console)
        body = urlencode({"login": email, "password": password, "csrfmiddlewaretoken": CSRF})
        cookies = f"csrftoken={CSRF}" + (f"; penstock_device={self.device}" if self.device else "")
        lines = (
            "POST /accounts/login/ HTTP/1.1",
            f"Host: {parts.netloc}",
            f"Cookie: {cookies}",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        where = (self.address, 0)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, local_addr=where)
        try:
            writer.write("\r\n".join((*lines, "", body)).encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            await reader.read()
        finally:
            writer.close()
        self._keep_device(head)
        return int(head.split(maxsplit=2)[1])

    def _keep_device(self, head: str) -> None:
        for line in head.split("\r\n"):
            if line.lower().startswith("set-cookie: penstock_device="):
                self.device = line.split("=", 1)[1].split(";")[0]


@dataclass
class Meanwhile:
    """How people's sign-ins went while something else happened."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter = field(default_factory=Counter)


async def attack(console: str, tries: Iterable[tuple[str, str]], *, at_once: int) -> Counter:
    """Try a wrong password from each address for each e-mail, so many at once; return how it was
    answered."""
    waiting, seen = iter(tries), Counter()

    async def attacker() -> None:
        for number, (address, email) in enumerate(waiting):
            seen[await Browser(address).sign_in(console, email, f"wrong {number}")] += 1

    await asyncio.gather(*(attacker() for _ in range(at_once)))
    return seen


@asynccontextmanager
async def people_signing_in(
    console: str, people: dict[str, Browser], *, every_seconds: float
) -> AsyncIterator[Meanwhile]:
    """Let people sign in one after the other until the block ends."""
    seen, ended = Meanwhile(), asyncio.Event()

    async def go_on() -> None:
        while not ended.is_set():
            for email, browser in people.items():
                began = time.perf_counter()
                seen.statuses[await browser.sign_in(console, email)] += 1
                seen.seconds.append(time.perf_counter() - began)
                await asyncio.sleep(every_seconds)

    task = asyncio.create_task(go_on())
    try:
        yield seen
    finally:
        ended.set()
        await task


def many_addresses(count: int) -> list[str]:
    """Return addresses of the loopback, each in a network of its own."""
    return [f"127.{1 + n // 250}.{n % 250 + 1}.1" for n in range(count)]
