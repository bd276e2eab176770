"""Fixtures of billing's tests: two customers, so that each test has an outsider, and a price."""

import pytest

from control.prices.models import Price
from tests.support.usage import Customer, make_customer, make_price


@pytest.fixture
def customer(db: None) -> Customer:
    return make_customer("Acme")


@pytest.fixture
def outsider(db: None) -> Customer:
    return make_customer("Outsider")


@pytest.fixture
def price(db: None) -> Price:
    return make_price()
