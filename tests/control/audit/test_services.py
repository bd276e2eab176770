"""What a deed says: whence it came, and people by reference."""

import pytest
from django.test import Client
from rest_framework.test import APIClient

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.audit.pseudonyms import ERASED, NameResolver
from control.audit.selectors import EventFilters, events
from control.audit.services import record
from control.organizations.members import change_role, invite_member, remove_member
from control.organizations.services import rename_organization
from control.permissions import Actor
from control.webhooks.services import create_endpoint, update_endpoint
from tests.fixtures.organizations import SeededOrganization

pytestmark = pytest.mark.django_db


def note(actor: Actor, **details: object) -> AuditEvent:
    return record(
        actor=actor, action="member.invited", target_kind="membership", target_id="mem_1",
        target_name="",
        details=details,
    )  # fmt: skip


def test_a_deed_names_the_request_and_its_address(org: SeededOrganization, base: str) -> None:
    client = APIClient(REMOTE_ADDR="203.0.113.7")
    client.force_login(org.owner)
    reply = client.patch(base, {"name": "Acme Labs"}, format="json")
    deed = AuditEvent.objects.get(action="organization.renamed")
    assert reply.headers["x-request-id"] == deed.request_id
    assert deed.address == "203.0.113.7"
    assert deed.details == {"before": {"name": "Acme"}, "after": {"name": "Acme Labs"}}


def test_what_the_platform_does_by_itself_comes_from_nowhere(org: SeededOrganization) -> None:
    deed = note(org.actor)
    assert (deed.address, deed.request_id) == (None, "")


def test_an_address_that_a_proxy_made_up_is_none(org: SeededOrganization, base: str) -> None:
    client = APIClient(REMOTE_ADDR="unknown, 1.2.3.4:80")
    client.force_login(org.owner)
    assert client.patch(base, {"name": "Acme Labs"}, format="json").status_code == 200
    assert AuditEvent.objects.get(action="organization.renamed").address is None


def test_no_address_of_anybody_stands_in_a_deed(org: SeededOrganization) -> None:
    grace = org.join("developer")
    change_role(actor=org.actor, membership=org.seat(grace), role="viewer")
    remove_member(actor=org.actor, membership=org.seat(grace))
    note(
        Actor.for_user(org.owner), **{grace.email: ["To GRACE@nowhere.example", {"x": grace.email}]}
    )
    found = list(AuditEvent.objects.all())
    assert len(found) > 5
    for deed in found:
        assert "@" not in deed.actor_name
        assert grace.email not in str(deed.details), deed
        assert org.owner.email not in str(deed.details), deed
    assert f"⟦{grace.id}⟧" in str([deed.details for deed in found])
    assert "…@nowhere.example" in str([deed.details for deed in found])


def test_people_are_shown_by_name_and_an_invited_one_too(org: SeededOrganization) -> None:
    invite_member(
        actor=org.actor, organization=org.organization, email="new@else.example", role="viewer"
    )
    invited = AuditEvent.objects.get(action="member.invited")
    names = NameResolver([invited])
    assert names.actor(invited) == org.owner.email
    assert names.details(invited)["email"] == "new@else.example"
    assert "new@" not in str(invited.details)


def test_a_person_who_is_no_more_has_no_name(org: SeededOrganization) -> None:
    deed = note(Actor(kind="user", id="user" + "x" * 24, name="gone@acme.example"))
    assert NameResolver([deed]).actor(deed) == ERASED


def test_nobody_learns_who_an_id_is_by_writing_it_into_a_name(org: SeededOrganization) -> None:
    deed = note(org.actor, name=f"⟦{org.owner.id}⟧")
    assert NameResolver([deed]).details(deed) == {"name": org.owner.id}


def test_people_are_found_by_name_and_only_in_the_organization(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    for each in (org, outsider):
        rename_organization(actor=each.actor, organization=each.organization, name="Another")
    found = events(org.id, filters=EventFilters(by="OWNER@"), limit=50)
    assert {deed.organization_id for deed in found} == {org.id}
    assert events(org.id, filters=EventFilters(by="owner@outsider"), limit=50) == []


def test_the_admin_shows_names_with_few_queries(
    org: SeededOrganization, django_assert_max_num_queries: object
) -> None:
    for _ in range(30):
        note(org.actor)
    client = Client()
    client.force_login(User.objects.create_superuser("op@penstock.test"))
    client.get("/admin/audit/auditevent/")
    with django_assert_max_num_queries(12):  # type: ignore[operator]
        page = client.get("/admin/audit/auditevent/").content.decode()
    assert org.owner.email in page
    assert org.owner.email in client.get("/admin/audit/auditevent/?q=owner@acme").content.decode()


def test_a_changed_webhook_says_what_was_before_and_no_token(org: SeededOrganization) -> None:
    endpoint, _ = create_endpoint(
        actor=org.actor,
        organization=org.organization,
        url="https://old.example/T0KEN",
        event_types=["api_key.created"],
    )
    update_endpoint(
        actor=org.actor, endpoint=endpoint, url="https://new.example/T0KEN", is_enabled=False
    )
    assert AuditEvent.objects.get(action="webhook_endpoint.updated").details == {
        "before": {"host": "old.example", "is_enabled": True},
        "after": {"host": "new.example", "is_enabled": False},
    }
