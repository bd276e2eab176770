"""A real page in Chromium, of another origin than the gateway's, that calls with a key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Page, async_playwright

from tests.fixtures.browser import FLAGS, MILLISECONDS_MAX, chromium_path
from tests.fixtures.gateway import Stack
from tests.fixtures.keyed import KEY, take_keys
from tests.serving.gateway.routes import CHAT
from tests.serving.gateway.test_cors import allow

CALL = """
async ([url, headers, body]) => {
  try {
    const reply = await fetch(url, {method: "POST", headers, body: JSON.stringify(body)});
    const again = reply.headers.get("idempotent-replayed");
    return {status: reply.status, id: reply.headers.get("x-request-id"), again,
            text: await reply.text()};
  } catch (error) {
    return {status: 0, text: String(error)};
  }
}
"""


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """Serve an empty page at an origin of its own."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>An app</title>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """A page of another origin, opened."""
    async with site() as origin, async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium_path(), args=FLAGS.split(), timeout=2 * MILLISECONDS_MAX
        )
        opened = await browser.new_page()
        opened.set_default_timeout(MILLISECONDS_MAX)
        await opened.goto(origin)
        try:
            yield opened
        finally:
            await browser.close()


async def call(page: Page, stack: Stack, **more: Any) -> dict[str, Any]:
    headers = {
        "authorization": f"Bearer {stack.tenant.secret}",
        "content-type": "application/json",
        "x-stainless-lang": "js",
        **more.pop("headers", {}),
    }
    told: dict[str, Any] = await page.evaluate(
        CALL, [stack.url + CHAT.path, headers, CHAT.body | more]
    )
    return told


async def test_a_page_may_call_once_its_origin_is_allowed(stack: Stack, page: Page) -> None:
    refused = await call(page, stack)
    assert (refused["status"], "Failed to fetch" in refused["text"]) == (0, True)
    assert stack.engines[0].engine.counts["prompt_tokens"] == 0
    await allow(stack, page.url.rstrip("/"))
    whole, streamed = await call(page, stack), await call(page, stack, stream=True)
    assert (whole["status"], streamed["status"]) == (200, 200)
    assert whole["id"]
    assert streamed["text"].endswith("data: [DONE]\n\n")
    await allow(stack, "https://other.example")
    assert (await call(page, stack))["status"] == 0


async def test_a_page_reads_its_errors_and_replays(stack: Stack, page: Page) -> None:
    await take_keys(stack)
    await allow(stack, page.url.rstrip("/"))
    first, again = await call(page, stack, headers=KEY), await call(page, stack, headers=KEY)
    assert (first["text"], first["again"], again["again"]) == (again["text"], None, "true")
    wrong = await call(page, stack, model="none")
    assert (wrong["status"], "does not exist" in wrong["text"]) == (404, True)
    stranger = await call(page, stack, headers={"authorization": "Bearer wrong"})
    assert (stranger["status"], "Incorrect API key" in stranger["text"]) == (401, True)
