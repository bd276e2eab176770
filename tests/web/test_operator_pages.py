"""The operator's own pages in real Chromium: they draw, fit, complain of nothing, and call nobody
else."""

import re

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect

from tests.fixtures.admin_session import sign_in
from tests.fixtures.browser import DESKTOP, LOOKS, watched_page, widest_overflow
from tests.fixtures.earnings import make_earnings

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("operator_pages"),
    pytest.mark.django_db(transaction=True),
]
PAGES = {
    "margin": "economics/enginelife/margin/",
    "margin by organization": "economics/enginelife/margin/?by=organization",
    "reconciliation": "economics/enginelife/reconciliation/",
    "alarms": "alarms/alarmcount/overview/",
}


@pytest.mark.full
@pytest.mark.parametrize(("window", "scheme"), LOOKS)
def test_the_pages_fit_their_window(
    browser: Browser, console: str, window: dict[str, int], scheme: str
) -> None:
    make_earnings(timezone.now())
    with watched_page(browser, window, scheme) as watched:
        sign_in(watched.page, console)
        for title, path in PAGES.items():
            watched.page.goto(f"{console}/admin/{path}")
            expect(watched.page.locator(".op-purpose")).to_be_visible()
            assert widest_overflow(watched.page) <= 0, title
        assert not watched.complaints
        assert watched.hosts <= {console.removeprefix("http://")}


def test_the_chart_of_margins_is_drawn_and_walked_by_keys(browser: Browser, console: str) -> None:
    make_earnings(timezone.now())
    with watched_page(browser, DESKTOP) as watched:
        page = watched.page
        sign_in(page, console)
        page.goto(f"{console}/admin/{PAGES['margin']}")
        canvas = page.locator("[data-chart] canvas")
        expect(canvas).to_have_attribute("style", re.compile("width"))
        canvas.focus()
        page.keyboard.press("ArrowRight")
        shown = page.evaluate(
            "Object.values(Chart.instances)[0].tooltip.body.map((part) => part.lines[0])"
        )
        assert any("Revenue" in line for line in shown)
        assert not watched.complaints
