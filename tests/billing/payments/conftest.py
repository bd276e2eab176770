"""Fixtures of payments: Stripe's double in the place of Stripe, two organizations."""

from collections.abc import Iterator

import pytest

from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.paying import in_place_of_stripe, without_welcome_credit
from tests.simulation.stripe_double import StripeDouble


@pytest.fixture
def stripe(settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[StripeDouble]:
    with in_place_of_stripe(settings, monkeypatch) as double:
        yield double


@pytest.fixture(scope="module", autouse=True)
def no_welcome_credit() -> Iterator[None]:
    with without_welcome_credit():
        yield


@pytest.fixture
def org(db: None) -> SeededOrganization:
    return make_organization("Acme")


@pytest.fixture
def outsider(db: None) -> SeededOrganization:
    return make_organization("Outsider")
