"""Where a client is, in whatever form a proxy or a server writes its address."""

import pytest
from django.test import RequestFactory
from rest_framework.test import APIClient

from control.api_keys.models import Scope
from control.request_context import client_address
from tests.fixtures.organizations import SeededOrganization

FORMS = {
    "192.0.2.7": "192.0.2.7",
    "192.0.2.7:4711": "192.0.2.7",
    " 192.0.2.7 ": "192.0.2.7",
    "::ffff:192.0.2.7": "192.0.2.7",
    "[::ffff:192.0.2.7]:4711": "192.0.2.7",
    "2001:db8::1": "2001:db8::1",
    "[2001:db8::1]": "2001:db8::1",
    "[2001:db8::1]:4711": "2001:db8::1",
    "fe80::1%eth0": "fe80::1",
    "": None,
    "unknown": None,
    "_hidden": None,
    "192.0.2.7, 10.0.0.1": None,
    "/run/socket": None,
}


@pytest.mark.unit
@pytest.mark.parametrize(("written", "meant"), FORMS.items())
def test_an_address_is_read_in_every_form(written: str, meant: str | None) -> None:
    found = client_address(RequestFactory().get("/", REMOTE_ADDR=written))
    assert (None if found is None else str(found)) == meant


@pytest.mark.integration
def test_a_key_bound_to_networks_knows_its_clients(org: SeededOrganization) -> None:
    _, secret = org.mint(scopes=[Scope.MANAGE], allowed_networks=["192.0.2.0/24", "2001:db8::/32"])
    expected = {
        written: 200 if meant in ("192.0.2.7", "2001:db8::1") else 401
        for written, meant in FORMS.items()
    }
    seen = {
        written: APIClient(REMOTE_ADDR=written, headers={"authorization": f"Bearer {secret}"})
        .get("/api/v1/organizations")
        .status_code
        for written in FORMS
    }
    assert seen == expected


@pytest.mark.integration
def test_people_sign_in_from_every_form_of_an_address(org: SeededOrganization) -> None:
    for written, meant in FORMS.items():
        client = APIClient(REMOTE_ADDR=written)
        form = {"login": org.owner.email, "password": "wrong"}
        status = client.post("/accounts/login/", form, format="multipart").status_code
        assert status in ((200, 429) if meant else (403,)), written
