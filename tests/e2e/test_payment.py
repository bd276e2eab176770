"""A customer's whole life with us, as the customer sees it: from signing up to the last refund, on
the running platform, with Stripe's double in Stripe's place. Every balance is right to the cent."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.fixtures.browser import DESKTOP, running_browser, watched_page
from tests.fixtures.customer import IN_FORCE_SECONDS, PRICE, Customer, cents_in
from tests.fixtures.newcomer import mint_key, sign_up, verify_address, wait_for_status
from tests.fixtures.operator import Operator
from tests.fixtures.passing_time import days_until_due, end_the_month, let_days_pass
from tests.fixtures.stripe_stack import PaidStack, running_with_stripe
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

EMAIL = "life@new.example"
LEGAL_NAME = "Life & Sons <Ltd>"
WELCOME_CENTS = 500
LIMIT_CENTS = 600
OWED_CENTS_MIN = 1_100
"""More than a top-up, so that no other payment is taken for the invoice's."""
GOOD_CARD, BAD_CARD = "pm_card_visa", "pm_card_chargeCustomerFail"
GOOD_CARDS_LAST, BAD_CARDS_LAST = "4242", "0341"
CHARGED_ON = (0, 3, 5, 7)
"""The days after due on which the schedule charges; it limits on the 10th, suspends on the 14th."""


@pytest.fixture(scope="module")
def paid_stack() -> Iterator[PaidStack]:
    with running_with_stripe() as paid:
        done = paid.stack.penstock("django", "shell", "--no-imports", "--command", PRICE)
        assert done.returncode == 0, done.stderr
        yield paid


def arrive(customer: Customer) -> None:
    """Sign up, follow the mail's link, find the welcome credit, and make a key."""
    sign_up(customer.page, customer.stack.credentials["console_url"], EMAIL)
    verify_address(customer.page, customer.stack, EMAIL)
    customer.funded_cents = WELCOME_CENTS
    customer.sees_balance()
    customer.api_key = mint_key(customer.page, "Life")
    wait_for_status(customer.stack.api_base, customer.api_key, 200, seconds=IN_FORCE_SECONDS)


def say_whom_invoices_are_for(customer: Customer) -> None:
    """Fill in the billing profile."""
    customer.open("Billing")
    customer.page.get_by_role("link", name="Billing profile").click()
    customer.page.get_by_label("Legal name").fill(LEGAL_NAME)
    customer.page.get_by_label("Address", exact=True).fill("Penstock Lane 1")
    customer.page.get_by_label("Purchase order").fill("PO-4711")
    customer.page.get_by_role("button", name="Save profile").click()
    expect(customer.page.get_by_text("The profile is saved")).to_be_visible()


def limit_spending(customer: Customer) -> None:
    """Set a hard limit by the day that tells at half of it."""
    customer.open("Billing")
    customer.page.get_by_role("link", name="Limits and alerts").click()
    form = customer.page.get_by_role("form", name="Add a limit")
    form.get_by_label("Period", exact=True).select_option("day")
    form.get_by_label("Limit in dollars").fill(f"{LIMIT_CENTS / 100:.2f}")
    form.get_by_label("Alert at these percentages").fill("50")
    form.get_by_role("button", name="Add limit").click()
    expect(customer.page.get_by_text("in force within a second")).to_be_visible()


def use_until_told(customer: Customer) -> None:
    """Spend beyond half of the limit; a mail tells it, once, and the page says so."""
    customer.wait_admitted()
    while customer.spent_cents < LIMIT_CENTS // 2:
        assert customer.ask().status_code == 200
    customer.gets_mail("% of the daily spending limit")
    customer.sees_balance()


def reach_the_limit(customer: Customer) -> None:
    """Spend until the gateway refuses: never beyond the limit."""
    refusal = customer.ask_until_refused()
    assert refusal.status_code == 429, refusal.text
    assert refusal.json()["error"]["type"] == "insufficient_quota", refusal.text
    assert LIMIT_CENTS // 2 <= customer.spent_cents <= LIMIT_CENTS
    customer.sees_balance()


def raise_the_limit(customer: Customer) -> None:
    """Change the limit; requests are admitted at once."""
    customer.page.get_by_role("link", name="Limits and alerts").click()
    customer.page.locator("table.limits").get_by_role("link").first.click()
    customer.page.get_by_label("Limit in dollars").fill("1000")
    customer.page.get_by_role("button", name="Change limit").click()
    expect(customer.page.get_by_text("The limit is changed")).to_be_visible()
    customer.wait_admitted()


def top_up_by_itself(customer: Customer) -> None:
    """Switch automatic top-ups on: the low balance is topped up within the minute, once."""
    customer.sees_balance()
    set_automatic(customer, is_on=True)
    customer.funded_cents += 2_000
    customer.sees_balance()
    customer.sees_payment("Auto-recharge", "$20.00", "Paid")
    set_automatic(customer, is_on=False)


def set_automatic(customer: Customer, *, is_on: bool) -> None:
    customer.open("Billing")
    form = customer.page.locator("form#automatic")
    form.get_by_label("Recharge automatically").set_checked(is_on)
    form.get_by_label("When the balance falls below, in dollars").fill("15")
    form.get_by_label("Add this amount, in dollars").fill("20")
    form.get_by_role("button", name="Save").click()
    expect(
        customer.page.get_by_text(f"Auto-recharge is {'on' if is_on else 'off'}.")
    ).to_be_visible()


def use_on_account(customer: Customer, operator: Operator) -> int:
    """The operator lets the customer pay afterwards, who uses more than the credit; return what
    is owed, in cents."""
    operator.let_pay_afterwards(EMAIL)
    while customer.balance_cents > -OWED_CENTS_MIN:
        customer.wait_admitted()
    customer.sees_balance()
    return -customer.balance_cents


def get_the_invoice(customer: Customer, owed_cents: int) -> None:
    """The month closes; the invoice asks for what no credit covered."""
    end_the_month(customer.stack)
    customer.open("Invoices")
    row = customer.page.get_by_role("row").filter(has_text="Open")
    assert cents_in(row.get_by_role("cell").nth(-2)) == owed_cents
    customer.open_invoice()
    expect(customer.page.get_by_text(f"{dollars(owed_cents)} left to pay")).to_be_visible()
    for words in (LEGAL_NAME, "PO-4711"):
        expect(customer.page.get_by_text(words)).to_be_visible()
    link = customer.page.get_by_role("link", name="PDF").get_attribute("href")
    console_url = customer.stack.credentials["console_url"]
    document = customer.page.request.get(f"{console_url}{link}")
    assert document.headers["content-type"] == "application/pdf"
    assert document.body().startswith(b"%PDF-")
    customer.page.get_by_role("link", name="← Invoices").click()


def be_declined(customer: Customer, operator: Operator, owed_cents: int) -> None:
    """A card without money is charged on the days of the schedule: nothing is paid, each time a
    mail and the pages say why, and what follows."""
    customer.save_card(BAD_CARD)
    customer.make_default(BAD_CARDS_LAST)
    before = -days_until_due(customer.stack)
    for count, day in enumerate(CHARGED_ON, start=1):
        let_days_pass(customer.stack, day - before)
        before = day
        customer.sees_payment("Invoice", dollars(owed_cents), "Declined", count=count)
        customer.gets_mail(f"Payment of {dollars(owed_cents)}", count=count)
    customer.gets_mail(": invoice INV-")
    customer.sees_notice(f"{dollars(owed_cents)} is due", "the service will be limited")
    operator.sees_in_collection("Grace", dollars(owed_cents), "Limit the service")
    customer.sees_balance()


def be_limited(customer: Customer, operator: Operator) -> None:
    """Who has no prepaid credit is served no more, and told so."""
    let_days_pass(customer.stack, 10 - CHARGED_ON[-1])
    customer.gets_mail("is limited")
    refusal = customer.ask_until_refused()
    assert refusal.status_code == 429, refusal.text
    customer.sees_notice("is overdue", "Your service is limited")
    operator.sees_in_collection("Limited", "Suspend")


def be_suspended(customer: Customer, operator: Operator) -> None:
    """Every request is refused, in words that say what it takes."""
    let_days_pass(customer.stack, 14 - 10)
    customer.gets_mail("is suspended")
    wait_until(
        lambda: customer.ask().status_code == 403,
        seconds=IN_FORCE_SECONDS,
        what="the gateway refuses who is suspended",
    )
    error = customer.ask().json()["error"]
    assert error["code"] == "organization_suspended", error
    assert "Billing page" in error["message"], error
    customer.sees_notice("is overdue", "Your service is suspended")
    operator.sees_in_collection("Suspended")


def pay(customer: Customer, operator: Operator, owed_cents: int) -> None:
    """The customer pays with another card: requests are served again, and nothing is owed of the
    invoice."""
    customer.pay_invoice(GOOD_CARD)
    customer.wait_admitted()
    customer.funded_cents += owed_cents
    customer.sees_payment("Invoice", dollars(owed_cents), "Paid")
    customer.sees_balance()
    customer.gets_mail("Paid: invoice")
    customer.gets_mail("is restored")
    customer.sees_no_notice()
    operator.finds_nothing_to_collect()
    customer.open("Invoices")
    row = customer.page.get_by_role("row").filter(has_text="Paid")
    assert cents_in(row.get_by_role("cell").nth(-2)) == 0


def be_refunded(customer: Customer, operator: Operator) -> None:
    """What is left of a last top-up is paid back by the operator: no credit is left, and the card
    has its money. What a gateway holds is not paid back, so it gives its leases back first."""
    customer.make_default(GOOD_CARDS_LAST)
    customer.top_up("25", on_stripes_page=False)
    left_cents = customer.balance_cents
    with customer.stack.stopped("gateway"):
        operator.refund_newest_payment(f"{left_cents / 100:.2f}")
    customer.funded_cents -= left_cents
    customer.sees_balance()
    refunds = customer.paid.stripe.all("refund")
    assert [refund["amount"] for refund in refunds] == [left_cents]


def dollars(cents: int) -> str:
    return f"${cents / 100:,.2f}"


def at_work(page: Page, customer: Customer) -> Operator:
    operator = Operator(page, customer.stack.credentials["admin_url"])
    operator.log_in(**customer.stack.credentials["operator"])
    operator.collect_from_midnight()
    return operator


def test_a_customers_whole_life(paid_stack: PaidStack) -> None:
    with (
        running_browser() as browser,
        watched_page(browser, DESKTOP) as watched,
        watched_page(browser, DESKTOP) as watched_operator,
    ):
        paid_stack.show_pages(watched.page.context)
        customer = Customer(watched.page, paid_stack, EMAIL)
        operator = at_work(watched_operator.page, customer)
        arrive(customer)
        say_whom_invoices_are_for(customer)
        customer.top_up("10", on_stripes_page=True)
        limit_spending(customer)
        use_until_told(customer)
        reach_the_limit(customer)
        raise_the_limit(customer)
        top_up_by_itself(customer)
        owed_cents = use_on_account(customer, operator)
        get_the_invoice(customer, owed_cents)
        be_declined(customer, operator, owed_cents)
        be_limited(customer, operator)
        be_suspended(customer, operator)
        pay(customer, operator, owed_cents)
        be_refunded(customer, operator)
        assert paid_stack.refusals == []
        assert operator.finds_the_ledger_agreeing()
