"""The operator's pages: money moves once per form and with a reason, the rest is looked at."""

import re
from datetime import timedelta

import msgspec
import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from billing.credit.models import Budget, CreditGrant, Lease, Payment
from billing.credit.selectors import balance_nanos, owed_nanos
from billing.credit.services.leases import charge
from billing.metering.ingest import ingest
from billing.metering.models import DeadLetter, UsageEvent
from billing.metering.services import book_again
from control.accounts.models import User
from control.alarms.models import AlarmCount
from control.audit.models import AuditEvent
from control.errors import Conflict, NotPermitted
from control.permissions import Actor
from tests.fixtures.spending import settle, use
from tests.fixtures.usage import GATEWAY, NOW, ask_for, give_credit, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
ADD = "/admin/credit/creditgrant/add/"
PAY = "/admin/credit/payment/add/"
DOLLAR = 10**9
PAGES = [
    "alerts/alert",
    "credit/budget",
    "credit/creditgrant",
    "credit/payment",
    "credit/lease",
    "ledger/account",
    "ledger/transaction",
    "metering/usageevent",
    "metering/deadletter",
    "alarms/alarmcount",
    "metering/day",
    "following/proof",
    "following/cursor",
]


@pytest.fixture
def operator():
    user = User.objects.create_superuser("operator@penstock.test")
    client = Client()
    client.force_login(user)
    return client


def form_id_of(operator, path):
    page = operator.get(path).content.decode()
    return re.search(r'name="idempotency_key" value="([^"]+)"', page)[1]


def fill(operator, customer, amount="2.50"):
    """Return a form as the operator would send it."""
    form_id = form_id_of(operator, ADD)
    return {
        "organization": customer.id,
        "kind": "prepaid",
        "amount": amount,
        "expires_at_0": "",
        "expires_at_1": "",
        "reason": "bank transfer",
        "idempotency_key": form_id,
    }


def test_a_form_sent_twice_grants_once(operator, customer):
    form = fill(operator, customer)
    for _ in range(2):
        assert operator.post(ADD, form).status_code == 302
    assert balance_nanos(customer.id) == 2_500_000_000
    assert CreditGrant.objects.get().granted_by == "operator@penstock.test"


def test_two_forms_grant_twice(operator, customer):
    for _ in range(2):
        operator.post(ADD, fill(operator, customer))
    assert CreditGrant.objects.count() == 2


@pytest.mark.parametrize("amount", ["0", "five", "-1"])
def test_a_senseless_amount_grants_nothing(operator, customer, amount):
    operator.post(ADD, fill(operator, customer, amount))
    assert not CreditGrant.objects.exists()


def test_a_payment_is_recorded_once_per_form(operator, customer):
    """11.90 with 1.90 of tax: 10 of credit."""
    form = fill(operator, customer, "11.90") | {
        "tax": "1.90",
        "idempotency_key": form_id_of(operator, PAY),
    }
    for _ in range(2):
        assert operator.post(PAY, form).status_code == 302
    payment = Payment.objects.get()
    assert (payment.tax_nanos, payment.recorded_by) == (19 * 10**8, "operator@penstock.test")
    assert balance_nanos(customer.id) == 10 * DOLLAR


def test_a_payment_of_nothing_but_tax_is_refused_in_words(operator, customer):
    form = fill(operator, customer, "1") | {"tax": "1"}
    reply = operator.post(PAY, form, follow=True)
    assert b"tax_nanos" in reply.content
    assert not Payment.objects.exists()


def page_of(row, deed):
    return f"/admin/credit/{row._meta.model_name}/{quote(row.pk)}/{deed}/"


def decide(operator, row, deed, **form):
    """Open the page of a deed and send its form twice, as a double click does."""
    path = page_of(row, deed)
    page = operator.get(path)
    assert page.status_code == 200
    if found := re.search(r'name="idempotency_key" value="([^"]+)"', page.content.decode()):
        form["idempotency_key"] = found[1]
    return [operator.post(path, {"reason": "by the book", **form}) for _ in range(2)]


def test_credit_is_paid_back_once_per_form(operator, customer):
    give_credit(customer, 5 * DOLLAR)
    decide(operator, Budget.objects.get(), "refund", amount_nanos="2")
    assert balance_nanos(customer.id) == 3 * DOLLAR
    assert AuditEvent.objects.get(action="credit.refund").details["reason"] == "by the book"


def test_more_than_there_is_is_not_paid_back_and_the_page_says_so(operator, customer):
    give_credit(customer, 5 * DOLLAR)
    _, reply = decide(operator, Budget.objects.get(), "refund", amount_nanos="6")
    assert re.search(rb"Only \$5(\.00)? can be refunded", reply.content)
    assert balance_nanos(customer.id) == 5 * DOLLAR


def test_a_debt_is_written_off_and_revenue_given_back_once_per_form(operator, customer):
    """5 given, 8 used, 3 owed: 2 written off, a note of 4 settles 1 and grants 3."""
    give_credit(customer, 5 * DOLLAR)
    use(customer, 8 * DOLLAR)
    settle(customer)
    row = Budget.objects.get()
    decide(operator, row, "write_off", amount_nanos="2")
    assert owed_nanos(customer.id) == DOLLAR
    decide(operator, row, "credit_note", amount_nanos="4")
    assert balance_nanos(customer.id) == 3 * DOLLAR


@pytest.mark.parametrize("form", [{"amount_nanos": "2", "reason": ""}, {"amount_nanos": "none"}])
def test_nothing_is_decided_without_amount_and_reason(operator, customer, form):
    give_credit(customer, 5 * DOLLAR)
    decide(operator, Budget.objects.get(), "refund", **form)
    assert balance_nanos(customer.id) == 5 * DOLLAR


def test_a_grant_is_reversed(operator, customer):
    grant = give_credit(customer, 5 * DOLLAR)
    operator.post(page_of(grant, "reverse"), {"reason": "mistake"})
    grant.refresh_from_db()
    assert grant.reversed_at is not None
    assert balance_nanos(customer.id) == 0
    assert operator.get(page_of(grant, "reverse")).status_code == 403


def test_a_lease_is_released_and_its_overrun_acknowledged(operator, customer):
    give_credit(customer, 5 * DOLLAR)
    ask_for(customer.balance, DOLLAR)
    row = Lease.objects.get()
    assert operator.get(page_of(row, "acknowledge")).status_code == 403
    operator.post(page_of(row, "release"), {"reason": "disk lost"})
    charge({row.budget_id: 2 * DOLLAR}, {row.pk: 2 * DOLLAR})
    operator.post(page_of(row, "acknowledge"), {"reason": "seen"})
    row.refresh_from_db()
    assert (row.voided_at is None, row.overrun_seen_at is None) == (False, False)
    assert operator.get(page_of(row, "release")).status_code == 403


def test_deeds_are_not_offered_where_they_make_no_sense(operator, customer):
    ask_for(f"limit:{customer.id}", 10)
    assert operator.get(page_of(Budget.objects.get(), "refund")).status_code == 403


def test_customers_decide_nothing(customer):
    give_credit(customer, 5 * DOLLAR)
    client = Client()
    user = User.objects.create_user("owner@acme.test")
    client.force_login(user)
    path = page_of(Budget.objects.get(), "refund")
    form = {"amount_nanos": "1", "reason": "mine", "idempotency_key": "x"}
    assert client.post(path, form).status_code in (302, 403)
    assert balance_nanos(customer.id) == 5 * DOLLAR


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_and_offers_no_change(operator, customer, price, page):
    operator.post(ADD, fill(operator, customer))
    operator.post(PAY, fill(operator, customer) | {"tax": ""})
    ask_for(customer.balance, 10)
    ingest(make_batch([make_event(customer, price), b"7"]), now=NOW)
    listing = operator.get(f"/admin/{page}/")
    assert listing.status_code == 200
    link = re.search(rf"/admin/{page}/[^/\"]+/change/", listing.content.decode())
    if link:
        shown = operator.get(link[0])
        assert shown.status_code == 200
        assert b'name="_save"' not in shown.content


def test_customers_see_no_admin_page(customer):
    client = Client()
    user = User.objects.create_user("owner@acme.test")
    client.force_login(user)
    assert client.get(ADD).status_code in (302, 403)


def dead_letter_of(payload):
    """Return a dead letter that holds these bytes."""
    return DeadLetter.objects.create(
        digest="0" * 64, gateway_id=GATEWAY, reason="test", payload=payload, received_at=NOW
    )


def test_a_dead_letter_is_booked_once_nothing_is_in_its_way(customer, price):
    letter = dead_letter_of(msgspec.json.encode(make_event(customer, price)))
    book_again(actor=Actor.for_system("tests"), letter=letter, now=NOW)
    assert balance_nanos(customer.id) == -132_000
    assert DeadLetter.objects.get().booked_at == NOW
    assert UsageEvent.objects.count() == 1


def test_an_event_of_a_clock_ahead_is_kept_and_booked_when_its_time_has_come(customer, price):
    ahead = make_event(customer, price, received_at=NOW + timedelta(minutes=6))
    receipt = ingest(make_batch([ahead, make_event(customer, price)]), now=NOW)
    assert (receipt.accepted, len(receipt.dead_lettered)) == (1, 1)
    assert AlarmCount.objects.get(kind="dead_letter").count == 1
    letter = DeadLetter.objects.get()
    with pytest.raises(Conflict, match="clock ahead"):
        book_again(actor=Actor.for_system("tests"), letter=letter, now=NOW)
    book_again(actor=Actor.for_system("tests"), letter=letter, now=NOW + timedelta(minutes=1))
    assert balance_nanos(customer.id) == -2 * 132_000


def test_a_dead_letter_that_is_no_event_stays_one():
    with pytest.raises(Conflict):
        book_again(actor=Actor.for_system("tests"), letter=dead_letter_of(b"7"), now=NOW)
    assert not UsageEvent.objects.exists()


def test_only_operators_book_dead_letters(customer, price):
    letter = dead_letter_of(msgspec.json.encode(make_event(customer, price)))
    stranger = Actor.for_user(User.objects.create_user("stranger@acme.test"))
    with pytest.raises(NotPermitted):
        book_again(actor=stranger, letter=letter, now=NOW)


def test_staff_who_may_look_only_moves_no_money(customer):
    """Rights to see are not rights to give back: no button, and no door behind it."""
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.balance, 1_000)
    looker = User.objects.create_user("looker@example.com", "pw", operator_role="viewer")
    client = Client()
    client.force_login(looker)
    (row,) = Lease.objects.all()
    page = f"/admin/credit/lease/{row.pk}"
    assert client.get(f"{page}/change/").status_code == 200
    assert client.get(f"{page}/release/").status_code == 403
    row.refresh_from_db()
    assert (row.wire_id, row.closed_at) == (lease.lease_id, None)
