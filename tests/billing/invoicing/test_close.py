"""Closing a month: lines, credit, tax, numbers and postings; safe to repeat; late usage goes on."""

import re
from datetime import date, timedelta

import psycopg
import pytest
from django.db import DatabaseError, connection

from billing.credit.selectors import balance_nanos, owed_nanos
from billing.following.closing import close_days
from billing.invoicing.closes import uninvoiced
from billing.invoicing.models import CloseFailure, Invoice, TaxRate
from billing.invoicing.periods import parse_period
from billing.invoicing.selectors import standing
from billing.invoicing.typeset.pdf import invoice_pdf
from billing.ledger.causes import AccountKind
from billing.ledger.selectors import balance_nanos as account_nanos
from billing.metering.batch import AGE_MAX
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.organizations.models import BillingMode
from control.permissions import Actor
from tests.fixtures.invoicing import (
    AFTER,
    MILLION_CENTS,
    NOVEMBER,
    OCTOBER,
    close,
    finish_month,
    invoice,
    is_finished,
    october,
    profile,
    sound,
    use,
    use_cents,
)
from tests.fixtures.organizations import make_organization
from tests.fixtures.usage import give_credit, make_customer, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
CENT = 10_000_000


@pytest.fixture
def price():
    return make_price(at=october(1))


@pytest.fixture
def cents_price():
    return make_price("by-the-cent", at=october(1), **MILLION_CENTS)


def lines(found: Invoice) -> list[tuple[str, int, int, int]]:
    return [
        (line.meter, line.quantity_tokens, line.amount_nanos, line.amount_cents)
        for line in found.lines.order_by("position")
    ]


def test_an_invoice_has_a_line_per_meter_with_exact_and_rounded_amounts(customer, price):
    """1,000 requests of 600 + 400 cached + 20 tokens: 90, 30 and 12 thousand nanos each."""
    for minute in range(10):
        use(customer, price, october(3, minute=minute), input_tokens=100_000,
            cached_input_tokens=40_000, output_tokens=2_000)  # fmt: skip
    finish_month()
    assert close().is_finished
    found = invoice(customer)
    assert lines(found) == [
        ("input", 600_000, 90_000_000, 9),
        ("cached_input", 400_000, 30_000_000, 3),
        ("output", 20_000, 12_000_000, 1),
    ]
    assert (found.subtotal_cents, found.total_cents) == (13, 13)
    assert (found.usage_nanos, found.owed_nanos) == (132_000_000, 132_000_000)
    assert re.fullmatch(r"INV-\d{6}", found.number)
    assert found.days[2] == [90_000_000, 30_000_000, 12_000_000]
    assert sum(map(sum, found.days)) == found.usage_nanos
    # rounding lowers the receivable by 2 million nanos; the balance says the same
    assert owed_nanos(customer.id) == 13 * CENT == -balance_nanos(customer.id)
    assert account_nanos(customer.id, AccountKind.ROUNDING) == 2_000_000
    assert is_finished()
    assert sound()


def test_who_pays_before_owes_nothing_and_no_rounding_is_booked(customer, price):
    give_credit(customer, 10**9, now=october(1))
    use(customer, price, october(30))
    finish_month()
    close()
    found = invoice(customer)
    assert (found.usage_nanos, found.owed_nanos, found.total_cents) == (132_000, 0, 0)
    assert balance_nanos(customer.id) == 10**9 - 132_000
    assert standing(found).state(AFTER.date()) == "paid"
    assert sound()


def test_credit_is_applied_and_tax_is_on_the_rest(customer, cents_price):
    """10.00 used, 4.00 of it from credit: 6.00, and 19 % of that is 1.14."""
    TaxRate.objects.create(country="DE", name="VAT", rate_basis_points=1900)
    profile(customer, country="DE", legal_name="Acme GmbH", purchase_order="PO 7")
    give_credit(customer, 400 * CENT, now=october(1))
    use_cents(customer, cents_price, 1000, october(30))
    finish_month()
    close()
    found = invoice(customer)
    sums = (found.subtotal_cents, found.credit_applied_cents, found.tax_cents, found.total_cents)
    assert sums == (1000, 400, 114, 714)
    assert found.tax["rate_basis_points"] == 1900
    assert (found.buyer["name"], found.purchase_order) == ("Acme GmbH", "PO 7")
    assert account_nanos(customer.id, AccountKind.TAX_PAYABLE) == -114 * CENT
    assert owed_nanos(customer.id) == 714 * CENT
    assert sound()


def test_a_business_abroad_with_a_tax_id_accounts_for_the_tax_itself(customer, cents_price):
    TaxRate.objects.create(country="DE", name="VAT", rate_basis_points=1900, reverse_charge=True)
    profile(customer, country="DE", tax_id="DE136695976")
    use_cents(customer, cents_price, 1000, october(30))
    finish_month()
    close()
    found = invoice(customer)
    assert (found.tax_cents, found.total_cents) == (0, 1000)
    assert found.tax["is_reverse_charge"]
    assert "everse charge" in found.tax["note"]


def test_a_name_that_no_font_has_stops_no_invoice(cents_price):
    customer = make_customer("𓀀𓁐 Papyri")
    use_cents(customer, cents_price, 1000, october(30))
    finish_month()
    assert close().is_finished
    found = invoice(customer)
    assert (found.total_cents, found.buyer["name"]) == (1000, "𓀀𓁐 Papyri")
    assert invoice_pdf(found).startswith(b"%PDF")
    assert sound()


def test_tokens_of_failed_requests_stand_in_no_line(customer, price):
    use(customer, price, october(30))
    use(customer, price, october(30, minute=1), outcome="engine_failed")
    use(customer, price, october(30, minute=2), outcome="client_cancelled")
    finish_month()
    close()
    assert [line[1] for line in lines(invoice(customer))] == [1200, 800, 40]
    assert sound()


def test_late_usage_is_on_the_next_invoice_in_a_line_that_says_so(customer, price):
    use(customer, price, october(31, 23, 59))
    finish_month()
    close()
    # came after October's last day was closed
    use(customer, price, october(31, 23, 58), now=AFTER + timedelta(hours=1))
    use(customer, price, AFTER)
    december = AFTER + timedelta(days=30, hours=1)
    finish_month(december)
    close(december, NOVEMBER)
    first, second = invoice(customer), invoice(customer, NOVEMBER)
    assert {line.received_on for line in first.lines.all()} == {OCTOBER.starts_on}
    months = [line.received_on for line in second.lines.order_by("position")]
    assert months == [NOVEMBER.starts_on] * 3 + [OCTOBER.starts_on] * 3
    assert first.usage_nanos + second.usage_nanos == 3 * 132_000
    assert sound()


def test_usage_that_is_as_late_as_ingest_takes_it_is_invoiced(customer):
    received_at = AFTER - AGE_MAX + timedelta(minutes=1)
    price = make_price(at=received_at)
    finish_month()
    use(customer, price, received_at, now=AFTER)
    december = AFTER + timedelta(days=30, hours=1)
    finish_month(december)
    close(december, NOVEMBER)
    found = invoice(customer, NOVEMBER)
    assert {line.received_on for line in found.lines.all()} == {date(2026, 8, 1)}
    assert found.usage_nanos == 132_000
    assert sound()


def test_usage_up_to_the_end_of_the_grace_is_in_and_after_it_is_not(customer, price):
    """A second before the last day is closed, and a second after."""
    closed_at = OCTOBER.ends_at + timedelta(hours=1)
    use(customer, price, october(31, 23, 59), now=closed_at - timedelta(seconds=1))
    finish_month(closed_at)
    use(customer, price, october(31, 23, 59), now=closed_at + timedelta(seconds=1))
    finish_month(closed_at)
    close(closed_at)
    assert invoice(customer).usage_nanos == 132_000
    assert sound()


def test_closing_again_changes_nothing(customer, price):
    use(customer, price, october(30))
    finish_month()
    close()
    before = list(Invoice.objects.values())
    assert close().invoices == []
    assert close(organization_id=customer.id).invoices == []
    assert list(Invoice.objects.values()) == before
    assert sound()


def test_who_used_nothing_gets_no_invoice(customer, outsider, price):
    use(customer, price, october(30))
    use(outsider, price, october(30), outcome="engine_failed")
    finish_month()
    assert len(close().invoices) == 1
    assert is_finished()


def test_one_that_fails_stops_nobody_else_and_is_invoiced_later(
    customer, outsider, price, monkeypatch
):
    from billing.invoicing import drafts
    from billing.invoicing.services import finalizing

    def broken(profile, *rest):
        if profile.organization_id == customer.id:
            raise RuntimeError("the tax service is down")
        return real(profile, *rest)

    real = drafts.tax_of
    for one in (customer, outsider):
        use(one, price, october(30))
    finish_month()
    monkeypatch.setattr(finalizing.drafts, "tax_of", broken)
    outcome = close()
    assert list(outcome.failures) == [customer.id]
    assert "the tax service is down" in CloseFailure.objects.get().reason
    assert [found.organization_id for found in Invoice.objects.all()] == [outsider.id]
    assert not is_finished()
    monkeypatch.undo()
    assert close().is_finished
    assert not CloseFailure.objects.exists()
    assert sorted(Invoice.objects.values_list("sequence", flat=True)) == [1, 2]
    assert is_finished()
    assert sound()


def test_an_open_a_future_and_an_unfollowed_month_are_refused(customer, price):
    use(customer, price, october(30))
    with pytest.raises(Conflict, match="is not over"):
        close(october(31, 23, 59))
    with pytest.raises(Conflict, match="not closed"):
        close(OCTOBER.ends_at + timedelta(minutes=59))
    finish_month(OCTOBER.ends_at + timedelta(minutes=59))  # all days but the last
    with pytest.raises(Conflict, match="not closed"):
        close(OCTOBER.ends_at + timedelta(minutes=59))
    close_days(now=AFTER)
    with pytest.raises(Conflict, match="not all of its usage"):
        close()
    with pytest.raises(Conflict, match="is not over"):
        close(period=parse_period("2031-01"))
    finish_month()
    with pytest.raises(ObjectNotFound):
        close(organization_id="org_nobody")
    with pytest.raises(NotPermitted):
        from billing.invoicing.services.closing import close_month

        close_month(
            period=OCTOBER, actor=Actor.for_user(make_organization("Nobody").owner), now=AFTER
        )
    assert not Invoice.objects.exists()


@pytest.mark.parametrize(
    "text", ["2026-13", "26-01", "2026-1", "", "2026-10-01", "\u0662026-10", "0000-01"]
)
def test_what_is_no_month_is_refused(text):
    with pytest.raises(InvalidValue):
        parse_period(text)


def test_a_month_before_the_first_usage_can_be_closed_and_invoices_nobody(customer, price):
    """Days before the first usage have no row: they were never open."""
    use(customer, price, AFTER)
    finish_month(AFTER + timedelta(days=2))
    assert close().is_finished
    assert not Invoice.objects.exists()


def test_months_are_closed_in_order(customer, price):
    use(customer, price, october(30))
    finish_month()
    close()
    december, january = AFTER + timedelta(days=30), AFTER + timedelta(days=61)
    use(customer, price, AFTER)
    use(customer, price, december)
    finish_month(january)
    with pytest.raises(Conflict, match="Close 2026-11 first"):
        close(january, parse_period("2026-12"))
    assert close(january, NOVEMBER).is_finished
    assert close(january, parse_period("2026-12")).is_finished
    assert sound()


@pytest.mark.parametrize("table", ["invoicing_invoice", "invoicing_invoice_line"])
@pytest.mark.parametrize("verb", ["UPDATE {} SET organization_id = 'x'", "DELETE FROM {}"])
def test_a_final_invoice_is_changed_by_nobody(customer, price, owner_connection, table, verb):
    use(customer, price, october(30))
    finish_month()
    close()
    with pytest.raises(DatabaseError), connection.cursor() as cursor:
        cursor.execute(verb.format(table))
    with pytest.raises(psycopg.Error):
        owner_connection.execute(verb.format(table))
    assert len(lines(invoice(customer))) == 3


def test_postpaid_says_so(price):
    customer = make_customer("Later", billing_mode=BillingMode.POSTPAID)
    profile(customer, terms_days=30)
    use(customer, price, october(30))
    finish_month()
    close()
    found = invoice(customer)
    assert (found.collection, found.due_on) == ("postpaid", (AFTER + timedelta(days=30)).date())
    assert uninvoiced(OCTOBER) == []
