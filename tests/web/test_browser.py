"""The console in real Chromium, against the real ASGI server; the gateway is a double."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, Route, expect

from control.api_keys.models import ApiKey
from tests.fixtures.browser import (
    DESKTOP,
    LOOKS,
    WatchedPage,
    bring_session,
    watched_page,
    widest_overflow,
)
from tests.fixtures.console import book, make_request
from tests.fixtures.gateway_double import WORDS, GatewayDouble
from tests.fixtures.mails import delivered, link_in
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.waiting import wait_until
from web.console.base import SECTIONS, address

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def watched(browser: Browser, console: str) -> Iterator[WatchedPage]:
    with watched_page(browser, DESKTOP) as page:
        yield page
        assert not page.complaints
        assert page.hosts <= {console.removeprefix("http://")}


def ask(page: Page, words: str) -> None:
    page.get_by_label("Message").fill(words)
    page.keyboard.press("Enter")


def test_a_stranger_signs_up_mints_a_key_and_revokes_it(
    watched: WatchedPage, console: str, prices: dict
) -> None:
    page = watched.page
    page.goto(f"{console}/accounts/signup/")
    page.get_by_label("Email").fill("grace@navy.example")
    page.get_by_label("Password").fill("a-long-enough-phrase")
    page.get_by_role("button", name="Create account").click()
    expect(page.get_by_role("heading", name="Check your email")).to_be_visible()
    page.goto(console + urlsplit(link_in(delivered()[0], "/accounts/confirm-email/")).path)
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("heading", name="Your first request")).to_be_visible()
    page.get_by_role("link", name="Create an API key").click()
    page.get_by_role("link", name="Create your first key").click()
    page.get_by_label("Name").fill("Ship")
    page.get_by_role("button", name="Create key").click()
    secret = page.locator("#secret").inner_text()
    page.wait_for_load_state()  # the button is its script's
    page.get_by_role("button", name="Copy the secret key").click()
    wait_until(lambda: page.evaluate("navigator.clipboard.readText()") == secret, "it is copied")
    page.get_by_role("link", name="Done, I saved it").click()
    page.get_by_role("link", name="Manage Ship").click()
    page.get_by_label("Type “Ship” to confirm").fill("Ship")
    page.get_by_role("button", name="Revoke this key").click()
    expect(page.get_by_text("is revoked")).to_be_visible()
    assert ApiKey.objects.get(name="Ship").revoked_at is not None


def test_an_answer_streams_in_and_shows_what_it_took(
    watched: WatchedPage,
    console: str,
    org: SeededOrganization,
    prices: dict,
    gateway: GatewayDouble,
) -> None:
    page = watched.page
    bring_session(page, console, org.owner)
    page.goto(console + address(org.organization, "playground"))
    ask(page, "What is Penstock?")
    expect(page.locator(".turn-answer .turn-text")).to_have_text(" ".join(WORDS))
    meters = page.locator("[data-meters]")
    for figure in ("TTFT", "tokens/s", "Input24", "Cached96", f"Output{len(WORDS)}", "$0.000018"):
        expect(meters).to_contain_text(figure)
    ask(page, "And again?")
    expect(page.locator("[data-meters]:visible")).to_have_count(2)
    assert [m["role"] for m in gateway.bodies[-1]["messages"]] == ["user", "assistant", "user"]


def test_a_reload_keeps_draft_chat_and_model(
    watched: WatchedPage,
    console: str,
    org: SeededOrganization,
    prices: dict,
    gateway: GatewayDouble,
) -> None:
    page, here = watched.page, console + address(org.organization, "playground")
    bring_session(page, console, org.owner)
    page.goto(here)
    page.get_by_label("Model", exact=True).select_option("penstock-demo:int8")
    page.get_by_label("System prompt").fill("Be brief.")
    ask(page, "What is Penstock?")
    expect(page.locator("[data-meters]:visible")).to_have_count(1)
    page.get_by_label("Message").fill("And then")
    page.reload()
    expect(page.get_by_label("Message")).to_have_value("And then")
    expect(page.get_by_label("Model", exact=True)).to_have_value("penstock-demo:int8")
    expect(page.locator(".turn-answer .turn-text")).to_have_text(" ".join(WORDS))
    ask(page, "And again?")
    expect(page.locator(".turn-answer")).to_have_count(2)
    expect(page.locator("[data-meters]:visible")).to_have_count(1)
    roles = [each["role"] for each in gateway.bodies[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]

    gateway.refusals = [(503, {"message": "Busy.", "code": "server_is_overloaded"})]
    ask(page, "Once more?")
    expect(page.get_by_text("Busy.")).to_be_visible()
    page.reload()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".turn-answer .turn-text").last).to_have_text(" ".join(WORDS))


def test_nothing_can_be_asked_of_a_page_that_does_not_listen_yet(
    watched: WatchedPage,
    console: str,
    org: SeededOrganization,
    prices: dict,
    gateway: GatewayDouble,
) -> None:
    page, held = watched.page, list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    bring_session(page, console, org.owner)
    page.route(re.compile(r"/playground\.[^/]*js$"), hold)
    page.goto(console + address(org.organization, "playground"), wait_until="commit")
    expect(page.get_by_label("Message")).to_be_disabled()
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    wait_until(lambda: page.wait_for_timeout(10) or held, "the script is asked for")
    assert len(held) == 1
    held[0].continue_()
    expect(page.get_by_label("Message")).to_be_focused()
    ask(page, "What is Penstock?")
    expect(page.locator(".turn-answer .turn-text")).to_have_text(" ".join(WORDS))


def test_stop_stops_the_gateways_work(
    watched: WatchedPage,
    console: str,
    org: SeededOrganization,
    prices: dict,
    gateway: GatewayDouble,
) -> None:
    gateway.pause_seconds = 5.0  # so slowly that the answer has not ended by itself
    page = watched.page
    bring_session(page, console, org.owner)
    page.goto(console + address(org.organization, "playground"))
    ask(page, "Go on for ever")
    expect(page.locator(".turn-answer .turn-text")).to_contain_text(WORDS[0])
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("You are charged for usage up to this point")).to_be_visible()
    assert gateway.aborted.wait(60)


def test_two_variants_answer_side_by_side(
    watched: WatchedPage,
    console: str,
    org: SeededOrganization,
    prices: dict,
    gateway: GatewayDouble,
) -> None:
    page = watched.page
    bring_session(page, console, org.owner)
    page.goto(console + address(org.organization, "playground"))
    page.get_by_role("button", name="Compare").click()
    ask(page, "Who are you?")
    expect(page.locator("[data-meters]:visible")).to_have_count(2)
    assert {body["model"] for body in gateway.bodies} == {"penstock-demo", "penstock-demo:int8"}


def test_the_code_is_the_call(
    watched: WatchedPage,
    console: str,
    org: SeededOrganization,
    prices: dict,
    gateway: GatewayDouble,
) -> None:
    page = watched.page
    bring_session(page, console, org.owner)
    page.goto(console + address(org.organization, "playground"))
    page.get_by_label("System prompt").fill("It's brief")
    page.get_by_role("button", name="View code").click()
    code = page.locator(".code-panel pre")
    expect(code).to_contain_text(f"curl {gateway.url}/chat/completions")
    expect(code).to_contain_text(r"It'\''s brief")
    page.get_by_role("tab", name="Python").click()
    expect(code).to_contain_text("client.chat.completions.create(")


@pytest.fixture
def playground(
    watched: WatchedPage,
    console: str,
    org: SeededOrganization,
    prices: dict,
    gateway: GatewayDouble,
) -> Page:
    """The playground, opened."""
    bring_session(watched.page, console, org.owner)
    watched.page.goto(console + address(org.organization, "playground"))
    return watched.page


def test_a_tool_is_called_and_answered(playground: Page, gateway: GatewayDouble) -> None:
    page = playground
    page.locator("[data-example=tools]").click()
    ask(page, "What is the weather in Rome?")
    expect(page.locator("[data-call]")).to_have_text('get_weather({"city": "Rome"})')
    expect(page.get_by_label("What get_weather says")).to_be_focused()
    ask(page, "And now?")
    expect(page.get_by_label("What get_weather says")).to_be_focused()
    expect(page.get_by_label("Message")).to_have_value("And now?")
    page.get_by_label("What get_weather says").fill("12 degrees")
    page.get_by_role("button", name="Send tool results").click()
    expect(page.locator(".turn-answer .turn-text").last).to_have_text(" ".join(WORDS))
    *_, call, result = gateway.bodies[-1]["messages"]
    assert call["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees"}


WRONG = [
    ("Tools", "[{", "This is not JSON yet"),
    ("Tools", "{}", "A list of tools is wanted"),
    ("Tools", '[{"name": "f"}]', 'Tool 1 needs "type": "function"'),
    ("Tools", '[{"type": "function", "function": {}}]', 'has no "name"'),
    ("JSON schema", "[]", "A JSON schema is an object"),
]


def test_what_is_wrong_with_tools_or_a_schema_is_said_before_anything_is_sent(
    playground: Page, gateway: GatewayDouble
) -> None:
    page = playground
    for label, typed, words in WRONG:
        page.get_by_label(label).fill(typed)
        ask(page, "What is Penstock?")
        expect(page.get_by_role("alert").filter(has_text=words)).to_be_visible()
        expect(page.get_by_label(label)).to_be_focused()
        expect(page.get_by_label("Message")).to_have_value("What is Penstock?")
        assert not gateway.bodies
        page.get_by_label(label).fill("")
    ask(page, "What is Penstock?")
    expect(page.locator(".turn-answer .turn-text")).to_have_text(" ".join(WORDS))


def test_the_code_holds_tools_and_a_schema_in_each_language(playground: Page) -> None:
    page = playground
    for kind in ("tools", "schema"):
        page.locator(f"[data-example={kind}]").click()
    page.get_by_role("button", name="View code").click()
    code = page.locator(".code-panel pre")
    expect(code).to_contain_text('"additionalProperties": false')
    page.get_by_role("tab", name="Python").click()
    expect(code).to_contain_text('"additionalProperties": False')
    compile(code.inner_text(), "snippet", "exec")
    page.get_by_role("tab", name="JavaScript").click()
    expect(code).to_contain_text('"get_weather"')


def test_a_receipt_that_is_not_booked_yet_comes_by_itself(
    watched: WatchedPage, console: str, org: SeededOrganization, key: ApiKey, prices: dict
) -> None:
    page, now = watched.page, timezone.now()
    event = make_request(key, prices["bf16"], now)
    bring_session(page, console, org.owner)
    page.goto(console + address(org.organization, "receipt", event.event_id))
    expect(page.get_by_role("heading", name="Receipt not ready yet")).to_be_visible()
    book(event, now=now)
    expect(page.get_by_role("heading", name="Receipt not ready yet")).to_be_hidden()
    expect(page.locator("#content")).to_contain_text(event.event_id)
    watched.complaints.clear()  # it was missing until then


def test_charts_draw_and_walk_by_keyboard(
    watched: WatchedPage, console: str, org: SeededOrganization, traffic: None
) -> None:
    page = watched.page
    bring_session(page, console, org.owner)
    page.goto(console + address(org.organization, "usage"))
    canvas = page.locator("[data-chart] canvas")
    blank = page.evaluate("c => document.createElement('canvas').toDataURL()")
    canvas.focus()
    before = canvas.evaluate("c => c.toDataURL()")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")  # today may have had no request yet
    assert blank != before != canvas.evaluate("c => c.toDataURL()")


def test_a_filter_changes_the_page_and_its_address(
    watched: WatchedPage, console: str, org: SeededOrganization, traffic: None
) -> None:
    page = watched.page
    bring_session(page, console, org.owner)
    page.goto(console + address(org.organization, "usage"))
    page.get_by_label("Group by").select_option("variant")
    expect(page.get_by_role("columnheader", name="Variant")).to_be_visible()
    assert "group=variant" in page.url
    page.get_by_role("link", name="Spend", exact=True).click()
    expect(page.get_by_role("heading", name="Spend per day, by variant")).to_be_visible()


def test_the_theme_switches_at_once_and_stays(
    watched: WatchedPage, console: str, org: SeededOrganization
) -> None:
    page = watched.page
    bring_session(page, console, org.owner)
    page.goto(console + address(org.organization, "overview"))
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.usefixtures("traffic")
@pytest.mark.parametrize(("window", "scheme"), LOOKS)
def test_no_page_is_wider_than_its_window(
    browser: Browser, console: str, org: SeededOrganization, window: dict[str, int], scheme: str
) -> None:
    with watched_page(browser, window, scheme) as watched:
        bring_session(watched.page, console, org.owner)
        for section in [*SECTIONS, "key_new"]:
            watched.page.goto(console + address(org.organization, section))
            assert widest_overflow(watched.page) <= 0, section
        assert not watched.complaints
