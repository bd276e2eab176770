"""One question to a feed over HTTP."""

from collections.abc import Awaitable, Callable

import aiohttp

Fetch = Callable[[int, str], Awaitable[bytes]]
"""Asks for what came after a version of a lineage; returns the answer's body, a `Page` in JSON."""

CONNECT_SECONDS = 2.0
READ_SECONDS = 40.0
"""A feed waits up to 25 s for news; silence beyond this is a dead connection."""


class FeedUnavailable(Exception):
    """The feed did not answer with a page: ask again later."""


class HttpSource:
    """Asks a feed at `url` with the internal secret as bearer. `on_date` hears when each answer
    was given."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        secret: str,
        *,
        read_seconds: float = READ_SECONDS,
        on_date: Callable[[str | None], None] = lambda date: None,
    ) -> None:
        self.session = session
        self.url = url
        self.on_date = on_date
        self.headers = {"authorization": f"Bearer {secret}"}
        self.timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=read_seconds
        )

    async def __call__(self, after: int, lineage: str) -> bytes:
        """Return the page after version `after` of a lineage. Raises FeedUnavailable."""
        try:
            async with self.session.get(
                self.url,
                params={"after": str(after), "lineage": lineage},
                headers=self.headers,
                timeout=self.timeout,
                allow_redirects=False,
            ) as answer:
                self.on_date(answer.headers.get("date"))
                if answer.status != 200:
                    raise FeedUnavailable(f"{self.url} answered {answer.status}")
                return await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise FeedUnavailable(f"{self.url}: {type(error).__name__}: {error}") from error
