"""Every PATCH of the management API takes the version that it was made from, and refuses a stale
one with the values that changed."""

from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.test import Client

from control.api import versions
from control.api_keys.models import ApiKey
from control.audit.models import AuditEvent
from control.organizations.models import Organization
from tests.fixtures.database import let_transaction_last
from tests.fixtures.furnished import furnish
from tests.fixtures.openapi import openapi_document
from tests.fixtures.operations import ADMIN, AUTO_TOP_UP, ORGANIZATION
from tests.fixtures.operator_tokens import bearer_client, make_operator, make_token
from tests.fixtures.organizations import SeededOrganization, make_organization
from tests.fixtures.paying import in_place_of_stripe

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
EDITS: dict[str, dict[str, Any]] = {
    f"PATCH {ORGANIZATION}": {"name": "New"},
    f"PATCH {ORGANIZATION}/projects/{{project_id}}": {"allowed_origins": ["https://a.example"]},
    f"PATCH {ORGANIZATION}/projects/{{project_id}}/rate-limits": {"requests_per_minute": 7},
    f"PATCH {ORGANIZATION}/api-keys/{{key_id}}": {"allowed_models": ["small"]},
    f"PATCH {ORGANIZATION}/api-keys/{{key_id}}/rate-limits": {"concurrent_requests": 7},
    f"PATCH {ORGANIZATION}/members/{{member_id}}": {"role": "developer"},
    f"PATCH {ORGANIZATION}/webhook-endpoints/{{endpoint_id}}": {"description": "New"},
    f"PATCH {ORGANIZATION}/spending-limits/{{limit_id}}": {"limit_nanos": 7 * 10**9},
    f"PATCH {ORGANIZATION}/alert-settings": {"low_runway_days": 9},
    f"PATCH {ORGANIZATION}/billing-profile": {"city": "Bonn"},
    f"PATCH {ORGANIZATION}/payment-methods/{{method_id}}": {"is_default": True},
    f"PUT {ORGANIZATION}/auto-recharge": AUTO_TOP_UP | {"amount_cents": 7000},
    f"PATCH {ADMIN}/models/{{model_id}}": {"name": "New"},
    f"PATCH {ADMIN}/variants/{{variant_id}}": {"size_bytes": 777},
    f"PATCH {ADMIN}/deployments/{{deployment_id}}": {"slots": 7},
    f"PATCH {ADMIN}/fleets/{{fleet_id}}": {"name": "Other"},
    f"PATCH {ADMIN}/price-books/{{book_id}}": {"name": "New"},
    f"PATCH {ADMIN}/usage-tiers/{{tier_id}}": {"name": "New"},
    f"PATCH {ADMIN}/organizations/{{organization_id}}": {"name": "Newer"},
    f"PATCH {ADMIN}/organizations/{{organization_id}}/terms": {"weight": 7},
    f"PUT {ADMIN}/organizations/{{organization_id}}/rate-limits": {"requests_per_minute": 7},
}
"""A change of each thing that has a version."""
ALREADY_SO = {f"PATCH {ORGANIZATION}/payment-methods/{{method_id}}"}
"""The only payment method is the default already."""
WHOLE = {f"PUT {ADMIN}/organizations/{{organization_id}}/rate-limits": "limits"}
"""What is compared as a whole, by operation."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch):
    """Return a function that calls an operation as who may do everything."""
    let_transaction_last()
    monkeypatch.setattr(settings, "CONFIG", settings.CONFIG)
    with in_place_of_stripe(settings, monkeypatch) as double:
        org, client = make_organization(), Client()
        ids = furnish(org, double)
        client.force_login(org.owner)
        operator = make_operator()
        tokens = {"": make_token(operator)[1]} | {
            each: make_token(operator, [each])[1] for each in ("finance:write", "customers:write")
        }

        def call(label: str, body: Any = None, only: str = "", **headers: str) -> Any:
            method, path = label.split(" ")
            bearer = {"authorization": f"Bearer {tokens[only]}"} if path.startswith(ADMIN) else {}
            return getattr(client, method.lower())(
                path.format(**ids),
                data=body,
                content_type="application/json",
                headers=bearer | headers,
            )

        yield call


def test_every_change_is_listed() -> None:
    paths = openapi_document()["paths"].items()
    changes = {f"PATCH {path}" for path, methods in paths if "patch" in methods}
    versioned = {
        f"{method.upper()} {path}"
        for path, methods in paths
        for method, operation in methods.items()
        if any(each["name"] == "If-Match" for each in operation.get("parameters", ()))
    }
    assert versioned == set(EDITS)
    assert changes <= versioned
    for label in EDITS:
        method, path = label.split(" ")
        of_path = openapi_document()["paths"][path]
        for operation in (of_path["get"], of_path[method.lower()]):
            assert "ETag" in operation["responses"]["200"]["headers"], label


def test_a_stale_change_is_refused_and_told(api) -> None:
    for label, body in EDITS.items():
        show = f"GET {label.split(' ')[1]}"
        first = api(show).headers["etag"]
        edited = api(label, body, if_match=first)
        assert edited.status_code == 200, (label, edited.content)
        newer, shown = edited.headers["etag"], api(show)
        assert newer == shown.headers["etag"], label
        [name] = [each for each in body if body.get(each) != AUTO_TOP_UP.get(each)]
        stale = first
        if label in ALREADY_SO:
            stale = f'"{name}:000000000000"'
        else:
            assert newer != first, label
        refused = api(label, body, if_match=f'"else", W/{stale}')
        error = refused.json()["error"]
        values = shown.json()
        if label in WHOLE:
            name = WHOLE[label]
        elif "limits" in values:
            values = values["limits"]
        now = values[name]
        assert refused.status_code == 409, label
        assert (error["code"], error["type"]) == ("stale_version", "conflict"), label
        refused = api(label, body, if_match=stale)
        error = refused.json()["error"]
        assert (error["param"], error["metadata"]) == (name, {"changed": {name: now}}), label
        assert refused.headers["etag"] == newer, label
        assert api(show).headers["etag"] == newer, label
        for accepted in (newer, f"W/{newer}", f"{stale}, {newer}", "*"):
            assert api(label, body, if_match=accepted).status_code == 200, (label, accepted)
        assert api(label, body).status_code == 200, label


def test_a_use_of_a_key_does_not_make_its_version_stale(api) -> None:
    label = f"PATCH {ORGANIZATION}/api-keys/{{key_id}}"
    version = api(label, {"name": "Old"}).headers["etag"]
    ApiKey.objects.update(last_used_at="2026-01-01T00:00:00Z")
    assert api(label, {"name": "New"}, if_match=version).status_code == 200


OF_CUSTOMERS = [
    (f"PATCH {ADMIN}/organizations/{{organization_id}}", {"name": "Newer"}, "customers:write"),
    (f"PATCH {ADMIN}/organizations/{{organization_id}}/terms", {"weight": 7}, "finance:write"),
]


@pytest.mark.parametrize(("label", "body", "permission"), OF_CUSTOMERS)
def test_a_refused_change_that_shows_a_customers_values_is_audited(
    api, django_capture_on_commit_callbacks, label: str, body: Any, permission: str
) -> None:
    views = AuditEvent.objects.filter(action="organization.viewed_by_operator")
    cache.clear()
    refused = api(label, body, only=permission, if_match='"else"')
    assert (refused.status_code, views.count()) == (403, 0)
    with django_capture_on_commit_callbacks() as callbacks:
        refused = api(label, body, if_match='"else"')
    assert (refused.status_code, views.count()) == (409, 1)
    assert callbacks, "later views are skipped only once this one is committed"
    assert api(label, body, only=permission, if_match="*").status_code == 200


def test_a_keys_version_is_compared_with_what_the_lock_protects(
    org: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, url = bearer_client(org.mint(scopes=["manage"])[1]), f"/api/v1/organizations/{org.id}"
    headers = {"if-match": client.get(url).headers["etag"]}
    monkeypatch.setattr(
        versions, "lock_edits", lambda owner: Organization.objects.update(name="Theirs")
    )
    refused = client.patch(url, {"name": "Mine"}, content_type="application/json", headers=headers)
    assert refused.json()["error"]["metadata"] == {"changed": {"name": "Theirs"}}
