"""The team in the console: who may change whom, and what ends with a seat."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.test import Client

from control.accounts.models import User
from control.api_keys.models import ApiKey, Scope
from control.api_keys.services import create_api_key
from control.audit.models import AuditEvent
from control.organizations.members import invite_member
from control.organizations.models import Invitation, Membership
from control.permissions import Actor, Role
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = pytest.mark.integration


def join(org: SeededOrganization, role: str, name: str = "") -> Membership:
    """Give somebody a seat."""
    user = User.objects.create_user(f"{name or role}@acme.example")
    return Membership.objects.create(organization=org.organization, user=user, role=role)


def invite(
    client: Client, org: SeededOrganization, email: str = "grace@acme.example", role: str = "viewer"
):
    form = {"email": email, "role": role}
    return client.post(address(org.organization, "team_invite"), form)


def remove(client: Client, org: SeededOrganization, seat: Membership, **form: str):
    typed = {"confirmation": seat.user.email} | form
    return client.post(address(org.organization, "member_remove", seat.id), typed)


def keys_of(org: SeededOrganization, seat: Membership) -> dict[str, ApiKey]:
    """Make a key for each scope, by somebody."""
    return {
        scope: create_api_key(
            actor=Actor.for_member(seat), project=org.project, name=scope, scopes=(scope,)
        )[0]
        for scope in (Scope.INFERENCE, Scope.MANAGE)
    }


def is_ended(key: ApiKey) -> bool:
    return ApiKey.objects.get(id=key.id).revoked_at is not None


def test_somebody_is_invited_again_and_no_more(member: Client, org: SeededOrganization) -> None:
    assert invite(member, org).status_code == 302
    [first] = Invitation.objects.all()
    page = member.get(address(org.organization, "team")).content.decode()
    assert "grace@acme.example" in page
    assert org.owner.email in page
    member.post(address(org.organization, "invitation_renew", first.id))
    again = Invitation.objects.get(revoked_at=None)
    assert again.digest != first.digest
    member.post(address(org.organization, "invitation_withdraw", again.id))
    assert not Invitation.objects.filter(revoked_at=None).exists()


def test_what_is_refused_is_said_and_nothing_typed_is_lost(
    member: Client, org: SeededOrganization
) -> None:
    reply = invite(member, org, email=org.owner.email)
    assert reply.status_code == 400
    assert f"{org.owner.email} is already a member." in reply.content.decode()
    assert f'value="{org.owner.email}"' in reply.content.decode()
    assert invite(member, org, role="king").status_code == 400


def test_a_role_holds_at_once(member: Client, client: Client, org: SeededOrganization) -> None:
    seat = join(org, Role.VIEWER)
    url = address(org.organization, "member_role", seat.id)
    assert member.post(url, {"role": "billing"}).status_code == 302
    theirs = Client()
    theirs.force_login(seat.user)
    assert theirs.get(address(org.organization, "billing")).status_code == 200


def test_who_may_no_longer_manage_has_no_key_that_does(
    member: Client, org: SeededOrganization
) -> None:
    seat = join(org, Role.ADMIN)
    made = keys_of(org, seat)
    member.post(address(org.organization, "member_role", seat.id), {"role": "developer"})
    assert {scope: is_ended(key) for scope, key in made.items()} == {
        "inference": False,
        "manage": True,
    }


@pytest.mark.parametrize("heir_role", [None, Role.DEVELOPER, Role.ADMIN])
def test_keys_end_with_their_makers_seat_or_pass_on(
    member: Client, org: SeededOrganization, heir_role: Role | None
) -> None:
    seat, others = join(org, Role.ADMIN), join(org, Role.ADMIN, "other")
    made, kept = keys_of(org, seat), keys_of(org, others)
    heir = None if heir_role is None else join(org, heir_role, "heir")
    reply = remove(member, org, seat, **({"transfer_keys_to": heir.id} if heir else {}))
    assert reply.status_code == 302
    assert not any(map(is_ended, kept.values()))
    assert is_ended(made["inference"]) is (heir is None)
    assert is_ended(made["manage"]) is (heir_role != Role.ADMIN)
    if heir is not None:
        assert ApiKey.objects.get(id=made["inference"].id).created_by == heir.user
    [deed] = AuditEvent.objects.filter(action="member.removed")
    assert len(deed.details["keys"]) == sum(map(is_ended, made.values()))


def test_removing_needs_the_address_typed(member: Client, org: SeededOrganization) -> None:
    seat = join(org, Role.DEVELOPER)
    reply = remove(member, org, seat, confirmation="developer@")
    assert reply.status_code == 400
    assert 'value="developer@"' in reply.content.decode()
    assert remove(member, org, seat).status_code == 302
    assert not Membership.objects.filter(id=seat.id).exists()


def test_who_leaves_sees_nothing_more_and_the_last_owner_stays(org: SeededOrganization) -> None:
    seat, theirs = join(org, Role.VIEWER), Client()
    theirs.force_login(seat.user)
    assert remove(theirs, org, seat)["location"] == "/"
    assert theirs.get(address(org.organization, "overview")).status_code == 404
    owners = Client()
    owners.force_login(org.owner)
    last = Membership.objects.get(user=org.owner)
    reply = remove(owners, org, last)
    assert reply.status_code == 400
    assert b"needs an owner" in reply.content


def test_lesser_roles_see_members_and_no_invitations(org: SeededOrganization) -> None:
    seat, theirs = join(org, Role.BILLING), Client()
    other = join(org, Role.VIEWER, "other")
    theirs.force_login(seat.user)
    invite_member(
        actor=org.actor, organization=org.organization, email="x@y.example", role="viewer"
    )
    page = theirs.get(address(org.organization, "team")).content.decode()
    assert other.user.email in page
    assert "x@y.example" not in page


def test_an_admin_neither_makes_nor_unmakes_owners(org: SeededOrganization) -> None:
    seat, theirs = join(org, Role.ADMIN), Client()
    theirs.force_login(seat.user)
    owner = Membership.objects.get(user=org.owner)
    assert invite(theirs, org, role="owner").status_code == 400
    url = address(org.organization, "member_role", owner.id)
    assert theirs.post(url, {"role": "viewer"}).status_code in (400, 403)
    assert remove(theirs, org, owner).status_code in (400, 403)
    assert Membership.objects.get(id=owner.id).role == Role.OWNER


def test_keys_go_to_no_stranger(
    member: Client, org: SeededOrganization, outsider: SeededOrganization
) -> None:
    seat = join(org, Role.DEVELOPER)
    foreign = Membership.objects.get(user=outsider.owner)
    assert remove(member, org, seat, transfer_keys_to=foreign.id).status_code == 400
    assert Membership.objects.filter(id=seat.id).exists()


def test_keys_are_offered_to_who_may_have_them(member: Client, org: SeededOrganization) -> None:
    seat, admin, viewer = (join(org, role) for role in (Role.DEVELOPER, Role.ADMIN, Role.VIEWER))
    create_api_key(actor=Actor.for_member(seat), project=org.project, name="Theirs")
    page = member.get(address(org.organization, "member", seat.id)).content.decode()
    offered = {each.id: f'value="{each.id}"' in page for each in (seat, admin, viewer)}
    assert offered == {seat.id: False, admin.id: True, viewer.id: False}


@pytest.mark.parametrize("is_over", [True, False])
def test_an_invitation_is_over_at_its_last_moment(
    member: Client, org: SeededOrganization, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    invite(member, org)
    moment = Invitation.objects.get().expires_at - timedelta(microseconds=0 if is_over else 1)
    clock = SimpleNamespace(now=lambda: moment)
    monkeypatch.setattr("web.console.team.timezone", clock)
    page = member.get(address(org.organization, "team")).content.decode()
    assert ('badge-warn">Expired<' in page) is is_over
