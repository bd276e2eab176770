"""The operator's pages: credit is granted once per form, the rest is looked at."""

import re

import pytest
from django.test import Client

from billing.credit.models import CreditGrant
from billing.credit.selectors import balance
from billing.metering.ingest import ingest
from billing.metering.models import DeadLetter, UsageEvent
from billing.metering.services import book_again
from control.actor import system
from control.errors import Conflict, NotPermitted
from control.tenants.models import User
from control.tenants.permissions import person
from tests.support.usage import NOW, make_batch, make_event, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
ADD = "/admin/credit/creditgrant/add/"
PAGES = [
    "credit/creditgrant",
    "credit/lease",
    "ledger/account",
    "ledger/transaction",
    "metering/usageevent",
    "metering/deadletter",
    "metering/tally",
]


@pytest.fixture
def operator():
    user = User.objects.create_superuser("operator@penstock.test")
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def fill(operator, customer, amount="2.50"):
    """Return a form as the operator would send it."""
    page = operator.get(ADD).content.decode()
    form_id = re.search(r'name="idempotency_key" value="([^"]+)"', page)[1]
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
    assert balance(customer.organization, NOW) == 2_500_000_000
    assert CreditGrant.objects.get().granted_by == "operator@penstock.test"


def test_two_forms_grant_twice(operator, customer):
    for _ in range(2):
        operator.post(ADD, fill(operator, customer))
    assert CreditGrant.objects.count() == 2


@pytest.mark.parametrize("amount", ["0", "five", "-1"])
def test_a_senseless_amount_grants_nothing(operator, customer, amount):
    operator.post(ADD, fill(operator, customer, amount))
    assert not CreditGrant.objects.exists()


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_and_offers_no_change(operator, customer, price, page):
    operator.post(ADD, fill(operator, customer))
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
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    assert client.get(ADD).status_code in (302, 403)


def late_price(customer):
    """Return the dead letter of an event whose price was published after it came."""
    price = make_price()
    event = make_event(customer, price, price_id="price_late")
    ingest(make_batch([event]), now=NOW)
    return DeadLetter.objects.get()


def test_a_dead_letter_is_booked_once_its_price_is_there(customer):
    letter = late_price(customer)
    with pytest.raises(Conflict, match="price_late"):
        book_again(actor=system("tests"), letter=letter, now=NOW)
    make_price("other", id="price_late")
    book_again(actor=system("tests"), letter=letter, now=NOW)
    assert UsageEvent.objects.get().charged_nanos == 132_000
    assert DeadLetter.objects.get().booked_at == NOW


def test_only_operators_book_dead_letters(customer):
    letter = late_price(customer)
    stranger = person(User.objects.create_user("stranger@acme.test"))
    with pytest.raises(NotPermitted):
        book_again(actor=stranger, letter=letter, now=NOW)
