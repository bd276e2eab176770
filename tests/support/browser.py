"""Chromium for tests, and what a page must never do in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from infra.local.setup import find_browser

FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
    " --disable-sync --no-first-run"
)
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


@cache
def chromium_path() -> str:
    """Return where Chromium is; a missing one fails the tests that need it, in one line."""
    path = find_browser()
    assert path is not None, "the browser tests need Chromium: put `chromium` on the PATH"
    return path


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run one Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS.split())
        try:
            yield browser
        finally:
            browser.close()


class WatchedPage:
    """A browser's page that remembers errors of script and policy, and every host it called."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@contextmanager
def watched_page(
    browser: Browser, viewport: dict[str, int], scheme: str = "light"
) -> Iterator[WatchedPage]:
    """Open a page of its own session."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(15_000)
    try:
        yield WatchedPage(context.new_page())
    finally:
        context.close()


def widest_overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")
