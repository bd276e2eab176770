"""Two organizations, of which one owes 10.00 for October, due on 15 November."""

import copy
from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from billing.invoicing.models import Invoice
from tests.fixtures.collecting import Debt, make_debt
from tests.fixtures.kept import kept
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.paying import in_place_of_stripe, without_welcome_credit
from tests.simulation.stripe_double import StripeDouble


@pytest.fixture(scope="module", autouse=True)
def no_welcome_credit() -> Iterator[None]:
    with without_welcome_credit():
        yield


@pytest.fixture
def stripe(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[StripeDouble]:
    with in_place_of_stripe(settings, monkeypatch) as double:
        yield double


@pytest.fixture(scope="module")
def debt(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Debt]:
    """What all tests of a module begin with; one with real transactions has a debt of its own."""
    yield from kept(django_db_blocker, make_debt)


@pytest.fixture
def org(debt: Debt, db: None) -> SeededOrganization:
    return copy.deepcopy(debt.org)


@pytest.fixture
def outsider(debt: Debt, db: None) -> SeededOrganization:
    return copy.deepcopy(debt.outsider)


@pytest.fixture
def owing(debt: Debt, db: None) -> Invoice:
    return copy.deepcopy(debt.invoice)
