"""Settings in the console: who may see and change what, and that changes reach the gateways."""

import pytest
from django.test import Client

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.feed.selectors import last_record
from control.organizations.models import Membership, Organization, Project
from control.permissions import Role
from serving.contract.codec import decode
from serving.contract.records import OrganizationRecord, ProjectRecord
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
ORIGINS = "https://App.example.com/\nhttp://localhost:5173  https://app.example.com:443"


def switch(client: Client, org: SeededOrganization, value: str) -> int:
    where = address(org.organization, "settings_idempotency")
    return client.post(where, {"idempotency_enabled": value}).status_code


def allow(client: Client, org: SeededOrganization, origins: str) -> int:
    where = address(org.organization, "project_origins", org.project.id)
    return client.post(where, {"allowed_origins": origins}).status_code


def sit(client: Client, org: SeededOrganization, role: str) -> Client:
    user = User.objects.create_user(f"{role}@acme.example")
    Membership.objects.create(organization=org.organization, user=user, role=role)
    client.force_login(user)
    return client


def test_idempotency_keys_are_turned_on_and_off(member: Client, org: SeededOrganization) -> None:
    where = address(org.organization, "settings")
    assert "Turn on and store responses for 24 hours" in member.get(where).content.decode()
    assert switch(member, org, "1") == 302
    page = member.get(where).content.decode()
    assert "Turn off and erase" in page
    assert "0 of 100,000 keys" in page
    record = last_record("organization", org.organization.id)
    assert record is not None
    assert decode(record.encode(), OrganizationRecord).takes_idempotency_keys
    assert switch(member, org, "0") == 302
    assert not Organization.objects.get(id=org.organization.id).idempotency_enabled
    told = AuditEvent.objects.filter(action="organization.idempotency_updated")
    assert [entry.details["after"]["idempotency_enabled"] for entry in told.order_by("id")] == [
        True,
        False,
    ]


def test_origins_are_kept_as_browsers_send_them(member: Client, org: SeededOrganization) -> None:
    assert allow(member, org, ORIGINS) == 302
    record = last_record("project", org.project.id)
    assert record is not None
    origins = decode(record.encode(), ProjectRecord).allowed_origins
    assert origins == ("http://localhost:5173", "https://app.example.com")
    shown = member.get(address(org.organization, "project", org.project.id)).content.decode()
    assert "http://localhost:5173\nhttps://app.example.com</textarea>" in shown
    [entry] = AuditEvent.objects.filter(action="project.allowed_origins_set")
    assert entry.details == {
        "before": {"allowed_origins": []},
        "after": {"allowed_origins": list(origins)},
    }


@pytest.mark.parametrize("text", ["*", "https://a.example/app", "null", "ftp://a.example"])
def test_what_is_no_origin_is_said_and_kept_in_the_form(
    member: Client, org: SeededOrganization, text: str
) -> None:
    where = address(org.organization, "project_origins", org.project.id)
    reply = member.post(where, {"allowed_origins": text})
    assert reply.status_code == 400
    page = reply.content.decode()
    assert f"{text}</textarea>" in page
    assert "wanted http:// or https://" in page
    assert Project.objects.get(id=org.project.id).allowed_origins == []


def test_others_are_offered_no_change(client: Client, org: SeededOrganization) -> None:
    sitting = sit(client, org, Role.DEVELOPER)
    page = sitting.get(address(org.organization, "settings")).content.decode()
    assert "An owner or admin can change this." in page
    assert "Turn on" not in page
    assert "<textarea" not in page
