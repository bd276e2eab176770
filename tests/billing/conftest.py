"""Fixtures of billing's tests: two customers, so that each test has an outsider, and a price."""

import pytest

from control.pricing.models import Price
from tests.fixtures.usage import Customer, make_customer, make_price


@pytest.fixture
def customer() -> Customer:
    return make_customer("Acme")


@pytest.fixture
def outsider() -> Customer:
    return make_customer("Outsider")


@pytest.fixture
def price() -> Price:
    return make_price()
