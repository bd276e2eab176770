"""Requests of the management API with an idempotency key: what a second one gets, and what not."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone
from rest_framework.test import APIClient

from control.api.idempotency import KEPT, purge_requests
from control.api.models import IdempotentRequest
from control.api_keys.models import ApiKey, Scope
from control.organizations.members import change_role
from control.permissions import Role
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.routes import routes

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
KEY = {"idempotency-key": "order-17"}


def mint(client: APIClient, base: str, org: SeededOrganization, **headers: str) -> Any:
    wish = {"project_id": org.project.id, "name": "Backend"}
    return client.post(f"{base}/api-keys", wish, headers=KEY | headers)


def test_a_key_minted_twice_is_one_with_the_secret_that_was_shown(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    first, again = mint(api, base, org), mint(api, base, org)
    assert ApiKey.objects.count() == 1
    assert again.content == first.content
    assert again.json()["secret"].startswith("pen_live_")
    kept = IdempotentRequest.objects.get()
    secret = first.json()["secret"]
    assert secret[:14] not in str(vars(kept))
    assert "order-17" not in str(vars(kept))


def test_the_same_key_of_another_caller_is_another(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    mint(api, base, org)
    _, secret = org.mint(scopes=[Scope.MANAGE])
    program = APIClient(headers={"authorization": f"Bearer {secret}"})
    assert mint(program, base, org).status_code == 201
    assert ApiKey.objects.filter(name="Backend").count() == 3


def test_what_was_refused_leaves_its_key_free(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    assert api.post(f"{base}/api-keys", {"name": "x"}, headers=KEY).status_code == 400
    assert not IdempotentRequest.objects.exists()
    assert mint(api, base, org).status_code == 201


def test_who_lost_the_role_gets_no_secret_again(base: str, org: SeededOrganization) -> None:
    user, client = org.join(Role.DEVELOPER), APIClient()
    client.force_login(user)
    assert mint(client, base, org).status_code == 201
    change_role(actor=org.actor, membership=org.seat(user), role=Role.VIEWER)
    reply = mint(client, base, org)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "idempotency_conflict")
    assert "secret" not in reply.json()


@pytest.mark.parametrize("key", ["", "k" * 256, "\x07"])
def test_a_key_that_is_none_is_named(
    api: APIClient, base: str, org: SeededOrganization, key: str
) -> None:
    reply = mint(api, base, org, **{"idempotency-key": key})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "Idempotency-Key"


def test_keys_are_forgotten_after_a_day(api: APIClient, base: str, org: SeededOrganization) -> None:
    mint(api, base, org)
    assert purge_requests(now=timezone.now()) == 0
    IdempotentRequest.objects.update(created_at=timezone.now() - KEPT - timedelta(seconds=1))
    assert mint(api, base, org).status_code == 201
    assert ApiKey.objects.count() == 2
    assert purge_requests(now=timezone.now() + KEPT) == 1


@pytest.mark.django_db(transaction=True)
def test_two_at_once_are_one(
    api: APIClient, base: str, org: SeededOrganization, pooled: None
) -> None:
    def call(_: int) -> Any:
        try:
            client = APIClient()
            client.cookies = api.cookies
            return mint(client, base, org)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        replies = list(threads.map(call, range(4)))
    assert {reply.content for reply in replies} == {replies[0].content}
    assert sum("idempotent-replayed" in reply.headers for reply in replies) == 3
    assert ApiKey.objects.count() == 1


def test_every_address_answers_options(api: APIClient) -> None:
    api.raise_request_exception = False
    failed = {
        route.template: status
        for route in routes("api", "console", "accounts", "invitations", "sso", "scim")
        if (status := api.options(route.path({})).status_code) >= 500
    }
    assert failed == {}
