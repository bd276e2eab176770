"""Each process of the data plane may call what it needs of control, and nothing else."""

import dataclasses
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from control.dataplane.authentication import CALLS
from serving.contract.credential import Role, ServiceAuthenticator, ServiceIdentity
from tests.fixtures.credentials import bearer
from tests.fixtures.routes import routes

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
PATHS = sorted(route.path({}) for route in routes("internal"))


def first_word(path: str) -> str:
    return path.removeprefix("/internal/v1/").partition("/")[0]


def status(path: str, headers: dict[str, str]) -> int:
    client = Client(raise_request_exception=False, headers=headers)
    return client.generic("POST", path, b"{").status_code


def test_every_call_belongs_to_somebody() -> None:
    assert {first_word(path) for path in PATHS} == set().union(*CALLS.values())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("role", ["gateway", "fleet", "control"])
def test_a_role_may_call_what_is_its_own(path: str, role: Role) -> None:
    may = first_word(path) in CALLS[role]
    assert (status(path, bearer(role)) not in (401, 403)) == may
    assert status(path, {}) == status(path, {"authorization": "Bearer wrong"}) == 401


def test_whose_credential_has_ended_is_a_stranger(settings: Any) -> None:
    path = "/internal/v1/leases"
    assert status(path, bearer("gateway")) == 400
    config = settings.CONFIG
    roots, ended = config.callers._roots, [ServiceIdentity("gateway", "test")]
    settings.CONFIG = dataclasses.replace(config, callers=ServiceAuthenticator(roots, ended))
    assert status(path, bearer("gateway")) == 401


def test_control_shows_the_fleet_a_credential_of_its_own() -> None:
    header = f"Bearer {settings.CONFIG.credential}"
    assert settings.CONFIG.callers.find(header) == ServiceIdentity("control", "control")
