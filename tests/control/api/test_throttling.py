"""One caller calls the management API so often in a minute, over all that they call."""

import dataclasses
from typing import Any

import pytest
from django.core.cache import cache
from rest_framework.test import APIClient

from control.api_keys.models import Scope
from tests.fixtures.operator_tokens import bearer_client, make_operator, make_token
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def limit(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three calls in a minute that does not end."""
    cache.clear()
    settings.CONFIG = dataclasses.replace(settings.CONFIG, management_api_rate_limit=3)
    monkeypatch.setattr("control.api.policies.time", lambda: 1_000_000_030.5)


def test_too_many_calls_are_told_when_to_come_back(api: APIClient, base: str) -> None:
    addresses = [base, f"{base}/api-keys", f"{base}/projects", base]
    replies = [api.get(address) for address in addresses]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
    assert replies[-1].headers["retry-after"] == "50"
    assert replies[-1].json() == {
        "error": {
            "message": "That is too many calls in a minute. Try again when Retry-After is over.",
            "type": "requests",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }


def test_callers_do_not_use_up_each_others_calls(
    api: APIClient, base: str, org: SeededOrganization, stranger: APIClient
) -> None:
    for _ in range(4):
        api.get(base)
    assert api.get(base).status_code == 429
    assert stranger.get("/api/v1/organizations").status_code == 200
    key = APIClient(headers={"authorization": f"Bearer {org.mint(scopes=[Scope.MANAGE])[1]}"})
    assert [key.get(base).status_code for _ in range(4)] == [200, 200, 200, 429]


def test_an_operator_token_has_calls_of_its_own() -> None:
    operator = make_operator()
    for _ in range(2):
        client = bearer_client(make_token(operator)[1])
        statuses = [client.get("/api/v1/admin/models").status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]


def test_the_next_minute_begins_anew(
    api: APIClient, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [api.get(base).status_code for _ in range(4)][-1] == 429
    monkeypatch.setattr("control.api.policies.time", lambda: 1_000_000_081.0)
    assert api.get(base).status_code == 200
