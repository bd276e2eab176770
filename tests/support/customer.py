"""A customer of a running platform: the console in a browser, the API with a key, and what each
shows of money, to the cent."""

import time

import httpx
from playwright.sync_api import Locator, Page, expect

from serving.contract.money import CENT_NANOS, parse_dollars
from tests.support.load import wait_until
from tests.support.mailbox import Mailbox
from tests.support.stripe_stack import PaidStack

TOKEN_CENTS = 10
"""What an output token costs; input costs nothing, so that every amount is whole cents."""
OUTPUT_TOKENS_MAX = 20
SETTLED_SECONDS = 60.0
IN_FORCE_SECONDS = 10.0
EVERY_SECONDS = 0.02
"""How often somebody asks who waits for the very moment."""
# What the operator does once: a price worth a limit and an invoice.
PRICE = f"""\
from control.actor import system
from control.catalog.models import Variant
from control.prices import services
from control.prices.comparison import Unconfirmed
actor = system("tests")
book = services.draft_book(actor=actor, name="House")
for variant in Variant.objects.all():
    services.set_price(actor=actor, book=book, variant=variant, input_nanos=0,
        cached_input_nanos=0, output_nanos={TOKEN_CENTS * CENT_NANOS * 1_000_000})
try:
    services.publish_book(actor=actor, book=book)
except Unconfirmed as error:
    services.publish_book(actor=actor, book=book, confirmation=error.sentence)
"""


class Customer:
    """Somebody at the console, whose key asks the gateway.

    What came in and what answers cost is counted here too: their difference is the balance.
    """

    def __init__(self, page: Page, paid: PaidStack, email: str) -> None:
        self.page, self.paid, self.stack, self.email = page, paid, paid.stack, email
        self.api_key = ""
        self.funded_cents = self.spent_cents = 0

    @property
    def balance_cents(self) -> int:
        """What the balance must be."""
        return self.funded_cents - self.spent_cents

    # What a customer does.

    def open(self, section: str) -> None:
        """Go to a page of the console."""
        rail = self.page.get_by_role("navigation", name="Console")
        rail.get_by_role("link", name=section, exact=True).click()

    def ask(self) -> httpx.Response:
        """Ask the gateway once; an answer is counted as spent."""
        reply = httpx.post(
            f"{self.stack.api_base}/chat/completions",
            headers={"authorization": f"Bearer {self.api_key}"},
            json={
                "model": self.stack.model,
                "messages": [{"role": "user", "content": f"Request {time.monotonic_ns()}"}],
                "max_tokens": OUTPUT_TOKENS_MAX,
            },
            timeout=30,
        )
        if reply.status_code == 200:
            self.spent_cents += reply.json()["usage"]["completion_tokens"] * TOKEN_CENTS
        return reply

    def ask_until_refused(self) -> httpx.Response:
        """Ask until the gateway refuses; return what it says."""
        for _ in range(1_000):
            reply = self.ask()
            if reply.status_code != 200:
                return reply
        raise AssertionError("nothing was ever refused")

    def ask_until_served(self, *, seconds: float) -> float:
        """Ask without a pause until the gateway answers; return the moment (of the monotonic
        clock)."""
        deadline = time.monotonic() + seconds
        while self.ask().status_code != 200:
            assert time.monotonic() < deadline, "the gateway never served again"
            time.sleep(EVERY_SECONDS)
        return time.monotonic()

    def wait_admitted(self) -> None:
        """Wait until the gateway admits a request again."""
        wait_until(
            lambda: self.ask().status_code == 200,
            timeout_seconds=IN_FORCE_SECONDS,
            what="the gateway admits requests",
        )

    def top_up(self, dollars: str, *, on_stripes_page: bool) -> None:
        """Top up by one of the amounts offered, and see it paid and the balance risen."""
        self.open("Billing")
        form = self.page.locator("form#top-up")
        form.get_by_label(f"${dollars}", exact=True).check()
        form.get_by_role("button", name="Top up").click()
        if on_stripes_page:
            self._pass_stripes_page()
        paid = self.page.get_by_text(f"${dollars}.00 of credit are yours")
        expect(paid).to_be_visible(timeout=SETTLED_SECONDS * 1_000)
        self.funded_cents += int(dollars) * 100
        self.sees_balance()

    def open_invoice(self) -> None:
        """Go to the page of the newest invoice."""
        self.open("Invoices")
        self.page.locator("section[aria-label=Invoices] tbody a").first.click()
        expect(self.page.get_by_role("heading", name="Invoice")).to_be_visible()

    def pay_invoice(self, card: str) -> None:
        """Pay the newest invoice with a card that is typed on Stripe's page."""
        self.paid.card = card
        self.open_invoice()
        self.page.get_by_role("button", name="Pay $").click()
        self._pass_stripes_page()
        settled = self.page.get_by_text("The invoice is settled")
        expect(settled).to_be_visible(timeout=SETTLED_SECONDS * 1_000)

    def save_card(self, card: str) -> None:
        """Save another card on Stripe's page, and let it pay from now on."""
        self.paid.card = card
        self.open("Billing")
        self.page.get_by_role("button", name="Add", exact=True).click()
        self._pass_stripes_page()
        expect(self.page.get_by_text("The payment method is saved")).to_be_visible()

    def make_default(self, last4: str) -> None:
        """Let a saved card pay from now on."""
        self.open("Billing")
        row = self.page.get_by_role("listitem").filter(has_text=f"…{last4}")
        row.get_by_role("button", name="Make default").first.click()
        expect(self.page.get_by_text("pays from now on")).to_be_visible()

    def _pass_stripes_page(self) -> None:
        self.page.get_by_role("link", name="Pay or save").click()
        self.page.get_by_role("link", name="Back to the shop").click()

    # What a customer sees.

    def figure(self, name: str) -> Locator:
        """Return one of a page's figures."""
        figures = self.page.locator(".figure").filter(has=self.page.get_by_text(name, exact=True))
        return figures.locator("dd").first

    def sees_balance(self) -> None:
        """Wait until the Billing page shows the balance that must be, held money aside."""

        def shown() -> int:
            self.open("Billing")
            return cents_in(self.figure("Balance"))

        wait_until(
            lambda: shown() == self.balance_cents,
            timeout_seconds=SETTLED_SECONDS,
            what=f"the balance is {self.balance_cents} cents",
            every_seconds=0.5,
        )

    def sees_notice(self, *words: str) -> None:
        """See a notice on the pages where money is looked at."""
        for section in ("Overview", "Billing", "Invoices"):
            self.open(section)
            notice = self.page.get_by_role("main").get_by_role("status")
            for word in words:
                expect(notice.filter(has_text=word)).to_be_visible()

    def sees_no_notice(self) -> None:
        """See that nothing is overdue."""
        for section in ("Overview", "Billing", "Invoices"):
            self.open(section)
            expect(self.page.locator(".alert-bad")).to_have_count(0)

    def gets_mail(self, words: str, *, count: int = 1) -> None:
        """Wait until so many mails have these words in their subject; no more than that."""
        mailbox = Mailbox(self.stack.credentials["admin_url"], **self.stack.credentials["operator"])

        def found() -> int:
            return sum(words in subject for subject in mailbox.subjects(self.email))

        wait_until(
            lambda: found() >= count,
            timeout_seconds=SETTLED_SECONDS,
            what=f"{count} mails say {words!r}",
        )
        assert found() == count, mailbox.subjects(self.email)
        mailbox.close()

    def sees_payment(self, *words: str, count: int = 1) -> None:
        """Wait until so many lines of the payments have all these words."""
        self.open("Billing")
        self.page.get_by_role("main").get_by_role("link", name="Payments", exact=True).click()
        row = self.page.get_by_role("row")
        for word in words:
            row = row.filter(has_text=word)
        deadline = time.monotonic() + SETTLED_SECONDS
        while row.count() < count:
            assert time.monotonic() < deadline, f"{row.count()} payments say {words}"
            self.page.wait_for_timeout(500)
            self.page.reload()


def cents_in(shown: Locator) -> int:
    """Return the exact cents of an amount that a page shows; it must be whole cents."""
    money = shown.locator(".money")
    text = (money.get_attribute("title") if money.count() else None) or shown.inner_text()
    text = text.strip().replace("\N{MINUS SIGN}", "-").replace(",", "")
    nanos = parse_dollars(text.removeprefix("-"))
    assert nanos % CENT_NANOS == 0, text
    return -nanos // CENT_NANOS if text.startswith("-") else nanos // CENT_NANOS
