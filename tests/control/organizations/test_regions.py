"""The regions that an organization is bound to: operators set them, members see them."""

from typing import Any

import pytest
from django.test import Client

from control.audit.models import AuditEvent
from control.errors import InvalidValue, NotPermitted
from control.feed.selectors import last_record
from control.organizations.services import set_allowed_regions
from control.permissions import Permission
from serving.contract.codec import decode
from serving.contract.records import OrganizationRecord
from tests.fixtures.operator_tokens import bearer_client, make_operator, make_token
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from web.console.base import address

pytestmark = pytest.mark.django_db


def bind(org: SeededOrganization, *regions: str, actor: Any = OPERATOR) -> None:
    set_allowed_regions(actor=actor, organization=org.organization, allowed_regions=regions)


def published(org: SeededOrganization) -> tuple[str, ...] | None:
    record = last_record("organization", org.id)
    assert record is not None
    return decode(record.encode(), OrganizationRecord).allowed_regions


def test_regions_are_published_and_audited(org: SeededOrganization) -> None:
    assert published(org) is None
    bind(org, "us-west", "eu-west", "eu-west")
    assert published(org) == ("eu-west", "us-west")
    event = AuditEvent.objects.get(action="organization.regions_set")
    assert event.organization_id == org.id
    assert event.details["after"] == {"allowed_regions": ["eu-west", "us-west"]}
    bind(org)
    assert published(org) is None


def test_members_do_not_set_their_regions(org: SeededOrganization) -> None:
    with pytest.raises(NotPermitted):
        bind(org, "eu-west", actor=org.actor)
    reply = org.api().patch(f"/api/v1/organizations/{org.id}", {"allowed_regions": ["eu-west"]})
    assert reply.status_code == 400
    assert published(org) is None


@pytest.mark.parametrize("region", ["EU", "eu west", "", "x" * 65])
def test_what_is_no_region_is_refused(org: SeededOrganization, region: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        bind(org, region)
    assert caught.value.param == "allowed_regions"


def test_members_see_their_regions(org: SeededOrganization) -> None:
    bind(org, "eu-west")
    shown = org.api().get(f"/api/v1/organizations/{org.id}").json()
    assert shown["allowed_regions"] == ["eu-west"]
    browser = Client()
    browser.force_login(org.owner)
    page = browser.get(address(org.organization, "settings")).content.decode()
    assert "eu-west" in page


def test_operators_set_regions_by_api_and_admin(org: SeededOrganization) -> None:
    operator = make_operator("support")
    script = bearer_client(make_token(operator, [Permission.CUSTOMERS_WRITE])[1])
    url = f"/api/v1/admin/organizations/{org.id}"
    reply = script.patch(url, {"allowed_regions": ["eu-west"]}, content_type="application/json")
    assert (reply.status_code, reply.json()["allowed_regions"]) == (200, ["eu-west"])
    assert reply.json()["name"] == org.organization.name
    browser = Client()
    browser.force_login(operator)
    page = browser.get(f"/admin/organizations/organization/{org.id}/change/")
    form = page.context["adminform"].form
    assert "eu-west" in str(form["allowed_regions"])
