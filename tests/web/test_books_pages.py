"""The pages on the books in real Chromium: they draw, fit, complain of nothing, call nobody."""

import pytest
from playwright.sync_api import Browser, expect

from tests.fixtures.admin_session import sign_in
from tests.fixtures.browser import LOOKS, watched_page, widest_overflow
from tests.fixtures.debts import make_debts

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("books_pages"),
    pytest.mark.django_db(transaction=True),
]


@pytest.mark.full
@pytest.mark.parametrize(("window", "scheme"), LOOKS)
def test_the_pages_fit_their_window(
    browser: Browser, console: str, window: dict[str, int], scheme: str
) -> None:
    first, *_, last = make_debts()
    pages = {
        "owed": "owed/",
        "revenue": "revenue/",
        "deferred": "deferred/",
        "trial balance": "trial-balance/",
        "journal": "journal/?from=2026-10-01&to=2026-10-31",
        "entries": "journal/?by=entry&from=2026-10-01&to=2026-11-30",
        "choice": "statement/",
        "statement": f"statement/?organization={first.id}&account=customer_balance",
        "days": f"statement/?organization={last.id}&from=2026-10-01&to=2026-11-30",
    }
    with watched_page(browser, window, scheme) as watched:
        page = watched.page
        sign_in(page, console)
        for title, path in pages.items():
            page.goto(f"{console}/admin/ledger/account/{path}")
            expect(page.locator(".op-purpose")).to_be_visible()
            assert page.locator(".op-empty").count() == 0, title
            for details in page.locator("details.op-details").all():
                details.locator("summary").click()
            assert widest_overflow(page) <= 0, title
        assert not watched.complaints
        assert watched.hosts <= {console.removeprefix("http://")}
