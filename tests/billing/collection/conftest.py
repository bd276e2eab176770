"""Two organizations, of which one owes 10.00 for October, due on 15 November."""

import dataclasses
from collections.abc import Iterator

import pytest

from billing.invoicing.models import Invoice
from billing.simulation.stripe_double import StripeDouble
from tests.fixtures.collecting import owe
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.paying import in_place_of_stripe


@pytest.fixture(autouse=True)
def no_welcome_credit(settings) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, signup_credit_nanos=0)


@pytest.fixture
def stripe(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[StripeDouble]:
    with in_place_of_stripe(settings, monkeypatch) as double:
        yield double


@pytest.fixture
def org(transactional_db: None) -> SeededOrganization:
    return make_organization("Acme")


@pytest.fixture
def outsider(transactional_db: None) -> SeededOrganization:
    return make_organization("Outsider")


@pytest.fixture
def owing(org: SeededOrganization, outsider: SeededOrganization) -> Invoice:
    [invoice] = owe(org)
    return invoice
