"""Failed requests that gateways report: stored in bounds, listed to their organization alone."""

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from control.dataplane import failed_requests
from control.dataplane.models import FailedRequest
from serving.contract import failed_requests as contract
from serving.contract.codec import encode
from serving.contract.ids import uuid7
from serving.contract.limits import GatewayHeartbeat
from tests.fixtures.credentials import bearer
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
BASE = "failed-requests"
NUMBERS = itertools.count(1)
"""Ids in the order in which they are made, also within a millisecond."""


def failed(org: SeededOrganization, at: datetime | None = None, **fields: Any) -> Any:
    told = {
        "status": 429,
        "code": "rate_limit_exceeded",
        "message": "Send fewer at once.",
        "endpoint": "/v1/chat/completions",
    } | fields
    at = at or timezone.now()
    return contract.FailedRequest(
        request_id=uuid7(at_ms=int(at.timestamp() * 1000), random_bits=next(NUMBERS) << 62),
        organization_id=org.id,
        project_id=org.project.id,
        key_id="key_1",
        received_at=at,
        **told,
    )


def report(*rows: contract.FailedRequest, name: str = "eu-1") -> Any:
    record = contract.FailedRequests("gw_1", rows)
    client = Client(headers=bearer("gateway", name, 1))
    return client.post(
        "/internal/v1/failed-requests", encode(record), content_type="application/json"
    )


def test_what_is_reported_is_listed_and_shown_newest_first(
    api: APIClient, org: SeededOrganization
) -> None:
    rows = [failed(org), failed(org, status=404, code="model_not_found", param="model")]
    assert report(*rows).json() == {"stored": 2}
    listed = api.get(BASE).json()["data"]
    assert [one["request_id"] for one in listed] == [rows[1].request_id, rows[0].request_id]
    assert api.get(f"{BASE}/{rows[1].request_id}").json() == listed[0]
    assert (listed[0]["status"], listed[0]["param"], listed[0]["variant_id"]) == (404, "model", "")


def test_what_is_reported_again_is_stored_once(api: APIClient, org: SeededOrganization) -> None:
    row = failed(org)
    for _ in range(2):
        assert report(row).status_code == 200
    assert len(api.get(BASE).json()["data"]) == 1


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"code": "model_not_found"}, ["b"]),
        ({"status": "429"}, ["a"]),
        ({"key_id": "key_1"}, ["b", "a"]),
        ({"key_id": "key_2"}, []),
        ({"client_request_id": "a"}, ["a"]),
        ({"end_time": "2001-01-01T00:00:00Z"}, []),
        ({"start_time": "2001-01-01T00:00:00Z"}, ["b", "a"]),
        ({"start_time": "2999-01-01T00:00:00Z"}, []),
        ({"limit": "1"}, ["b"]),
    ],
)
def test_the_list_is_filtered(
    api: APIClient, org: SeededOrganization, query: dict[str, str], wanted: list[str]
) -> None:
    other = {"status": 404, "code": "model_not_found"}
    report(failed(org, client_request_id="a"), failed(org, client_request_id="b", **other))
    listed = api.get(BASE, query).json()["data"]
    assert [one["client_request_id"] for one in listed] == wanted


@pytest.mark.parametrize("query", [{"status": "200"}, {"start_time": "soon"}, {"cod": "x"}])
def test_a_bad_filter_is_named(api: APIClient, query: dict[str, str]) -> None:
    reply = api.get(BASE, query)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, *query)


def test_an_outsider_sees_none(
    api: APIClient, org: SeededOrganization, outsider: SeededOrganization
) -> None:
    row = failed(outsider)
    report(row, failed(org))
    assert len(api.get(BASE).json()["data"]) == 1
    assert api.get(f"{BASE}/{row.request_id}").status_code == 404


def test_an_hour_is_bounded_for_each_organization(
    org: SeededOrganization, outsider: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failed_requests, "HOURLY_MAX", 3)
    long_ago = timezone.now() - timedelta(hours=2)
    assert report(*[failed(org, long_ago) for _ in range(2)]).json() == {"stored": 2}
    for wanted in (2, 1, 0):
        assert report(failed(org), failed(org)).json() == {"stored": wanted}
    monkeypatch.setattr(failed_requests, "HOURLY_MAX", 2)
    assert report(failed(org)).json() == {"stored": 0}
    assert report(failed(outsider)).json() == {"stored": 1}


def test_text_that_no_table_can_hold_is_stored_without_it(
    api: APIClient, org: SeededOrganization
) -> None:
    texts = {"code": "c\0", "param": "p\0", "message": "m\0", "endpoint": "/\0"}
    assert report(failed(org, client_request_id="\0", **texts), failed(org)).json() == {"stored": 2}
    listed = api.get(BASE).json()["data"][1]
    assert [listed[name] for name in texts] == ["c", "p", "m", "/"]


def test_unknown_organizations_and_foreign_gateways_store_nothing(org: SeededOrganization) -> None:
    row = failed(org)
    unknown = contract.FailedRequest(**{**_fields(row), "organization_id": "org_none"})
    assert report(unknown).json() == {"stored": 0}
    owner = Client(headers=bearer("gateway", "eu-1", 1))
    beat = encode(GatewayHeartbeat("gw_1"))
    owner.post("/internal/v1/gateways/heartbeat", beat, content_type="application/json")
    assert report(row, name="eu-2").status_code == 403
    assert not FailedRequest.objects.exists()


def test_old_ones_are_purged(org: SeededOrganization) -> None:
    now = timezone.now()
    old = now - failed_requests.RETENTION - timedelta(seconds=1)
    report(failed(org, old), failed(org, now))
    assert failed_requests.purge(now=now) == 1
    assert FailedRequest.objects.count() == 1


def _fields(row: contract.FailedRequest) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}
