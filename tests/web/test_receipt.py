"""A receipt: tokens times price is the amount, and outsiders see none."""

import uuid
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from control.api_keys.models import ApiKey
from control.pricing.models import Price
from serving.contract.ids import new_id
from serving.contract.usage import UsageEvent
from tests.fixtures.console import book, make_request
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = pytest.mark.integration


def booked(key: ApiKey, price: Price, **changes: object) -> UsageEvent:
    now = timezone.now()
    event = make_request(key, price, now - timedelta(minutes=5), **changes)
    book(event, now=now)
    return event


def test_the_lines_add_up(
    member: Client, org: SeededOrganization, key: ApiKey, prices: dict[str, Price]
) -> None:
    event = booked(key, prices["bf16"])
    page = member.get(address(org.organization, "receipt", event.event_id)).content.decode()
    # 600 at 0.15, 400 at 0.075 and 20 at 0.60 dollars a million
    for amount in ("$0.00009", "$0.00003", "$0.000012", "$0.000132"):
        assert f">{amount}<" in page


def test_what_was_our_fault_is_waived(
    member: Client, org: SeededOrganization, key: ApiKey, prices: dict[str, Price]
) -> None:
    event = booked(key, prices["bf16"], outcome="engine_failed")
    page = member.get(address(org.organization, "receipt", event.event_id)).content.decode()
    assert "Not charged" in page
    assert "Waived: the failure was on our side" in page


def test_an_unknown_request_has_no_receipt(member: Client, org: SeededOrganization) -> None:
    url = address(org.organization, "receipt", str(uuid.uuid4()))
    assert member.get(url).status_code == 404


def test_a_request_of_this_moment_is_awaited(member: Client, org: SeededOrganization) -> None:
    reply = member.get(address(org.organization, "receipt", new_id()))
    assert reply.status_code == 404
    assert "until a request is recorded" in reply.content.decode()


def test_older_requests_are_a_page_further(
    member: Client, org: SeededOrganization, key: ApiKey, prices: dict[str, Price]
) -> None:
    now = timezone.now().replace(microsecond=0)  # an id holds milliseconds
    moments = [now - timedelta(minutes=n) for n in range(60)]
    book(*(make_request(key, prices["bf16"], at) for at in moments), now=now)
    first = member.get(address(org.organization, "requests"))
    second = member.get(first.context["older_url"])
    assert (len(first.context["rows"]), len(second.context["rows"])) == (50, 10)
    seen = [row.event.received_at for row in (*first.context["rows"], *second.context["rows"])]
    assert seen == moments
