"""Several organizations that owe, and several invoices of one."""

from datetime import UTC, datetime, timedelta

import pytest

from billing.collection.models import State
from billing.collection.services import looking
from billing.collection.services.looking import look
from control.pricing.models import Price
from tests.fixtures.collecting import Debt, day, make_debt, names, owe, pass_days, pay, state_of
from tests.fixtures.invoicing import NOVEMBER, close, customer_of, finish_month, use_cents
from tests.fixtures.organizations import make_organization

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def debt(transactional_db: None) -> Debt:
    return make_debt()


def test_one_that_fails_holds_nobody_up(monkeypatch):
    org, outsider = make_organization("Acme"), make_organization("Outsider")
    owe(org, outsider)
    real = looking.proceed

    def fail(found):
        if found.case.pk == org.id:
            raise RuntimeError("broken")
        real(found)

    monkeypatch.setattr(looking, "proceed", fail)
    assert look(now=day(0)) == 1
    assert names(outsider) == [("retry", "reminded")]
    monkeypatch.setattr(looking, "proceed", real)
    look(now=day(0))
    assert names(org) == []  # it is left for ten minutes
    look(now=day(0) + timedelta(minutes=10))
    assert names(org) == [("retry", "reminded")]


def test_a_second_invoice_begins_at_the_first_step(org, owing):
    use_cents(customer_of(org), Price.objects.get(), 500, day(1))
    after = datetime(2026, 12, 1, 2, tzinfo=UTC)
    finish_month(after)
    close(after, NOVEMBER)
    pass_days(7)
    pay(org, at=day(8))
    assert state_of(org) == State.CURRENT
    pass_days(29, 8)
    assert state_of(org) == State.CURRENT
    pass_days(30, 30)  # 15 December
    assert (state_of(org), names(org)[-1]) == (State.RETRYING, ("retry", "reminded"))


def test_many_at_once_are_all_served():
    orgs = [make_organization(f"Many{number}") for number in range(8)]
    owe(*orgs)
    assert look(now=day(0), limit=5) == 5
    assert look(now=day(0), limit=5) == 3
    assert all(names(org) == [("retry", "reminded")] for org in orgs)
