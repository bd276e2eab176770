"""Two organizations: one to test, and the outsider who must see nothing of it."""

from collections.abc import Iterator

import pytest
from django.db import connections
from rest_framework.test import APIClient

from control.keys.models import ApiKey
from tests.support.organizations import House, make_house


@pytest.fixture
def house(db: None) -> House:
    return make_house("Acme")


@pytest.fixture
def outsider(db: None) -> House:
    return make_house("Outsider")


@pytest.fixture
def key(house: House) -> ApiKey:
    return house.mint()[0]


@pytest.fixture
def api(house: House) -> APIClient:
    """The owner's session in the management API."""
    client = APIClient()
    client.force_login(house.owner)
    return client


@pytest.fixture
def stranger(outsider: House) -> APIClient:
    """Another organization's owner."""
    client = APIClient()
    client.force_login(outsider.owner)
    return client


@pytest.fixture
def base(house: House) -> str:
    return f"/api/v1/organizations/{house.id}"


@pytest.fixture
def pooled(transactional_db: None) -> Iterator[None]:
    """For tests with threads: connections that the pool still holds end with the test."""
    yield
    for connection in connections.all():
        connection.close_pool()
