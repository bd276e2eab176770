"""The operator at the admin, in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from tests.support.browser import DESKTOP, running_browser, watched_page
from tests.support.second_factor import SECRETS, next_code
from tests.support.stack import Stack


class Operator:
    """Somebody who is logged in to the admin and fills in its forms."""

    def __init__(self, page: Page, admin_url: str) -> None:
        self.page = page
        self.admin_url = admin_url

    def log_in(self, email: str, password: str) -> None:
        self.page.goto(self.admin_url)
        self.page.get_by_label("Email").fill(email)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in", exact=True).click()
        self.prove_second_factor(email, password)
        self.page.goto(self.admin_url)
        expect(self.page.get_by_text("Live API keys")).to_be_visible()

    def prove_second_factor(self, email: str, password: str) -> None:
        """Set one up at the first sign-in, and be asked for it at the others."""
        whose = urlsplit(self.admin_url).netloc, email
        if whose not in SECRETS:  # then the password is asked once more
            self.page.get_by_label("Password").fill(password)
            self.page.get_by_label("Password").press("Enter")
        code = self.page.locator("#id_code")
        expect(code).to_be_visible()
        if whose not in SECRETS:
            SECRETS[whose] = self.page.locator("#authenticator_secret").input_value()
        code.fill(next_code(SECRETS[whose]))
        code.press("Enter")
        expect(code).to_be_hidden()

    def set_replicas(self, variant: str, count: int) -> None:
        """Change how many replicas of a variant (`model:precision`) there shall be."""
        self.page.goto(f"{self.admin_url}catalog/deployment/")
        self.page.get_by_role("link", name=f"{variant} on").click()
        self.page.get_by_label("Replicas min").fill(str(count))
        self._save()

    def let_sleep(self, variant: str, *, after_seconds: float, wake_seconds: float) -> None:
        """Change after how long without a request a variant sleeps (0: never), and how long
        requests wait for one that wakes."""
        self.page.goto(f"{self.admin_url}catalog/deployment/")
        self.page.get_by_role("link", name=f"{variant} on").click()
        self.page.get_by_label("Sleep after seconds").fill(str(after_seconds))
        self.page.get_by_label("Wake seconds").fill(str(wake_seconds))
        self._save()

    def live_replicas(self, variant: str) -> str:
        """Return what the list of deployments says of a variant's replicas."""
        self.page.goto(f"{self.admin_url}catalog/deployment/")
        row = self.page.get_by_role("row").filter(has_text=f"{variant} on")
        return row.get_by_role("cell").last.inner_text().strip()

    def open_grant(self, *, organization: str, dollars: str) -> None:
        """Fill in the form of a credit grant, without sending it."""
        self.page.goto(f"{self.admin_url}credit/creditgrant/add/")
        self.page.get_by_label("Organization").select_option(label=organization)
        self.page.get_by_label("Amount").fill(dollars)
        self.page.get_by_label("Reason").fill("The house test paid.")

    def send_grant(self) -> None:
        self._save()

    def let_pay_afterwards(self, organization: str) -> None:
        """Let an organization owe what it uses beyond its credit."""
        self.page.goto(f"{self.admin_url}tenants/organization/?q={organization}")
        self.page.locator("#result_list tbody th a").first.click()
        self.page.get_by_label("Billing mode").select_option("postpaid")
        self._save()

    def refund_newest_payment(self, dollars: str) -> None:
        """Pay back what the newest payment through Stripe brought."""
        self.page.goto(f"{self.admin_url}payments/stripepayment/")
        self.page.locator("#result_list tbody th a").first.click()
        self.page.get_by_role("link", name="Refund", exact=True).click()
        self.page.get_by_label("Amount").fill(dollars)
        self.page.get_by_label("Reason").fill("The house test asked for it.")
        self.page.get_by_role("button", name="Refund").click()
        expect(self.page.get_by_text("Refund: done")).to_be_visible()

    def collect_from_midnight(self) -> None:
        """Have steps of collection taken from the first hour of their day on."""
        self.page.goto(f"{self.admin_url}collection/settings/1/change/")
        self.page.get_by_label("Hour").fill("0")
        self._save()

    def sees_in_collection(self, *words: str) -> None:
        """See how the one who is overdue stands in collection: the line has all these words."""
        self.page.goto(f"{self.admin_url}collection/case/")
        for word in words:
            line = self.page.locator("#result_list tbody tr").filter(has_text=word)
            expect(line).to_be_visible()

    def finds_nothing_to_collect(self) -> None:
        """See that nobody is overdue."""
        self.page.goto(f"{self.admin_url}collection/case/")
        expect(self.page.locator("#result_list tbody tr")).to_have_count(0)

    def finds_the_ledger_agreeing(self) -> bool:
        """Tell whether the pages of revenue and of unspent credit agree with the ledger."""
        pages = {"revenue": "agrees to the nano-dollar", "deferred": "the same, to the nano-dollar"}
        for page, words in pages.items():
            self.page.goto(f"{self.admin_url}ledger/account/{page}/")
            if self.page.get_by_text(words).count() == 0:
                return False
        return True

    def _save(self) -> None:
        self.page.get_by_role("button", name="Save", exact=True).click()
        expect(self.page.get_by_text("successfully")).to_be_visible()


@contextmanager
def at_the_admin(stack: Stack) -> Iterator[Operator]:
    """Log the operator in."""
    with running_browser() as browser, watched_page(browser, DESKTOP) as watched:
        operator = Operator(watched.page, stack.credentials["admin_url"])
        operator.log_in(**stack.credentials["operator"])
        yield operator
