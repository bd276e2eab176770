"""Two organizations, of which one has an invoice of October."""

import pytest

from billing.invoicing.models import Invoice
from control.pricing.models import Price
from tests.fixtures.invoicing import (
    MILLION_CENTS,
    close,
    customer_of,
    finish_month,
    october,
    use_cents,
)
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.usage import make_price


@pytest.fixture
def cents_price() -> Price:
    return make_price("by-the-cent", at=october(1), **MILLION_CENTS)


@pytest.fixture
def org(transactional_db: None) -> SeededOrganization:
    return make_organization("Acme")


@pytest.fixture
def stranger(transactional_db: None) -> SeededOrganization:
    return make_organization("Stranger")


@pytest.fixture
def invoiced(org: SeededOrganization, cents_price: Price) -> Invoice:
    """Acme's invoice of 10.00 for October."""
    use_cents(customer_of(org), cents_price, 1000, october(30))
    finish_month()
    close()
    return Invoice.objects.get()
