"""Two organizations, of which one has an invoice of October."""

import pytest

from billing.invoicing.models import Invoice
from control.prices.models import Price
from tests.support.invoicing import (
    MILLION_CENTS,
    close,
    customer_of,
    finish_month,
    october,
    use_cents,
)
from tests.support.organizations import House, make_house
from tests.support.usage import make_price


@pytest.fixture
def cents_price() -> Price:
    return make_price("by-the-cent", at=october(1), **MILLION_CENTS)


@pytest.fixture
def house(transactional_db: None) -> House:
    return make_house("Acme")


@pytest.fixture
def stranger(transactional_db: None) -> House:
    return make_house("Stranger")


@pytest.fixture
def invoiced(house: House, cents_price: Price) -> Invoice:
    """Acme's invoice of 10.00 for October."""
    use_cents(customer_of(house), cents_price, 1000, october(5))
    finish_month()
    close()
    return Invoice.objects.get()
