"""Requests that were refused or failed: why, and what to do."""

import re
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from control.api_keys.models import ApiKey
from control.dataplane.models import FailedRequest
from control.pricing.models import Price
from serving.contract.ids import new_id
from tests.fixtures.console import book, make_request
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address
from web.console.failed_requests import REASONS

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
GATEWAY = Path(__file__).parents[2] / "serving/gateway"
BEFORE_A_KEY = {"invalid_api_key", "unknown_url", "method_not_allowed"}
"""Codes of requests whose key is not known yet, which are not stored."""


def fail(key: ApiKey, request_id: str = "", **fields: object) -> FailedRequest:
    told = {"status": 429, "code": "rate_limit_exceeded", "message": "Too many at 17:03."} | fields
    return FailedRequest.objects.create(
        request_id=request_id or new_id(),
        organization=key.organization,
        project_id=key.project_id,
        key_id=key.id,
        received_at=timezone.now(),
        endpoint="/v1/chat/completions",
        **told,
    )


def rows(client: Client, org: SeededOrganization, **query: str) -> list[str]:
    page = client.get(address(org.organization, "requests", outcome="failed", **query))
    return [str(row.request.request_id) for row in page.context["rows"]]


def test_each_code_of_the_gateway_has_a_reason() -> None:
    sources = [path.read_text() for path in GATEWAY.rglob("*.py")]
    codes = {code for text in sources for code in re.findall(r'code="([a-z_]+)"', text)}
    assert codes - BEFORE_A_KEY <= set(REASONS)


def test_they_are_listed_with_filters(
    member: Client, org: SeededOrganization, key: ApiKey, prices: dict[str, Price]
) -> None:
    variant = prices["bf16"].variant
    older, newer = sorted((new_id(), new_id()))
    limited = fail(key, older, variant_id=variant.id)
    unknown = fail(key, newer, status=404, code="model_not_found")
    both = [str(unknown.request_id), str(limited.request_id)]
    today = timezone.now().date().isoformat()
    assert rows(member, org) == both
    assert rows(member, org, code="model_not_found") == both[:1]
    assert rows(member, org, model=variant.model_id) == both[1:]
    assert rows(member, org, key=key.id, project=key.project_id, **{"from": today}) == both
    assert rows(member, org, key="key_none") == []
    assert rows(member, org, before=both[0]) == both[1:]


@pytest.mark.parametrize("code", [*REASONS, "unheard_of", ""])
def test_each_reason_has_a_page_with_the_gateways_words(
    member: Client, org: SeededOrganization, key: ApiKey, code: str
) -> None:
    failed = fail(key, code=code)
    page = member.get(address(org.organization, "receipt", str(failed.request_id)))
    assert page.status_code == 200
    assert "Too many at 17:03." in page.content.decode()
    assert page.context["failed"].reason.remedy


def test_a_request_is_found_by_its_id(member: Client, org: SeededOrganization, key: ApiKey) -> None:
    failed = fail(key)
    found = member.get(address(org.organization, "requests", id=f" {failed.request_id} "))
    assert found.headers["location"].endswith(f"/requests/{failed.request_id}")
    wrong = member.get(address(org.organization, "requests", id="no id"), follow=True)
    assert "“no id” is not a request ID" in wrong.content.decode()


def test_a_charged_request_that_failed_says_why(
    member: Client, org: SeededOrganization, key: ApiKey, prices: dict[str, Price]
) -> None:
    event = make_request(key, prices["bf16"], timezone.now())
    book(event, now=timezone.now())
    fail(key, event.event_id, status=504, code="timeout", message="It took too long.")
    page = member.get(address(org.organization, "receipt", event.event_id))
    assert "It took too long." in page.content.decode()


def test_an_outsider_sees_none(stranger: Client, outsider: SeededOrganization, key: ApiKey) -> None:
    failed = fail(key)
    assert rows(stranger, outsider) == []
    theirs = address(outsider.organization, "receipt", str(failed.request_id))
    assert b"Too many at 17:03." not in stranger.get(theirs).content
