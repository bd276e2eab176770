"""A change of address by the identity provider follows the person; the old address is free. It
reaches no address and no account that the organization's provider does not manage."""

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.audit.changes import changes_of
from control.audit.models import AuditEvent
from control.audit.pseudonyms import NameResolver
from control.db.models import InvitationState
from control.operators.models import OperatorInvitation
from control.operators.services import invite_operator
from control.organizations.members import accept_invitation, change_role, invite_member
from control.organizations.models import Invitation, Membership, Organization
from control.permissions import Actor
from control.sso import addresses, reclaim
from control.sso.connections import create_scim_token
from control.sso.models import ScimUser, SsoConnection
from tests.control.sso.test_scim import USER, Caller
from tests.fixtures.identity_providers import OidcProvider
from tests.fixtures.mails import delivered
from tests.fixtures.name_server import NameServer
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.sso import sign_in, verify, who

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OLD, NEW = "keller@acme.example", "vogt@acme.example"


@pytest.fixture
def caller(acme: SeededOrganization) -> Caller:
    return Caller(create_scim_token(actor=acme.actor, organization=acme.organization))


def rename(caller: Caller, row: dict[str, Any], email: str) -> Any:
    change = {"op": "replace", "path": "userName", "value": email}
    return caller.patch(f"/Users/{row['id']}", change)


def addresses_of(user: User) -> list[tuple[str, bool, bool]]:
    rows = EmailAddress.objects.filter(user=user).order_by("email")
    return list(rows.values_list("email", "verified", "primary"))


def test_a_new_user_name_is_the_persons_address_and_the_old_one_is_free(
    acme: SeededOrganization, caller: Caller
) -> None:
    row = caller.add(OLD)
    person = User.objects.get(email=OLD)
    browser = Client()
    browser.force_login(person)
    assert rename(caller, row, "Vogt@acme.example").status_code == 200
    person.refresh_from_db()
    assert person.email == NEW
    assert addresses_of(person) == [(NEW, True, True)]
    assert {mail.to[0] for mail in delivered()} >= {OLD, NEW}
    assert browser.get("/", follow=True).status_code == 200

    hired = caller.add(OLD)
    other = User.objects.get(email=OLD)
    assert (hired["userName"], other.pk == person.pk) == (OLD, False)
    members = Membership.objects.filter(organization=acme.organization)
    assert members.filter(user__in=[person, other]).count() == 2


def test_the_audit_log_tells_the_change(acme: SeededOrganization, caller: Caller) -> None:
    rename(caller, caller.add(OLD), NEW)
    for action, label in (("user.email_changed", "Email"), ("scim.user_updated", "User name")):
        event = AuditEvent.objects.get(organization_id=acme.id, action=action)
        names = NameResolver([event])
        assert names.target(event) == NEW
        assert dict(changes_of(names.details(event)))[label] == f"…@acme.example → {NEW}"
        assert OLD not in str(event.details)


def test_other_organizations_learn_the_change_and_not_whose_provider_it_was(
    acme: SeededOrganization, outsider: SeededOrganization, caller: Caller
) -> None:
    row = caller.add(OLD)
    _, secret = invite_member(
        actor=outsider.actor, organization=outsider.organization, email=OLD, role="admin"
    )
    accept_invitation(user=User.objects.get(email=OLD), secret=secret)
    again, _ = invite_member(
        actor=acme.actor, organization=acme.organization, email="x@else.example", role="viewer"
    )
    Invitation.objects.filter(pk=again.pk).update(email=OLD, organization=outsider.organization)
    rename(caller, row, NEW)
    events = AuditEvent.objects.filter(organization_id=outsider.id, actor_name="SCIM")
    assert {event.action: (event.actor_id, event.actor_name) for event in events} == {
        "user.email_changed": ("", "SCIM"), "member.invitation_revoked": ("", "SCIM"),
    }  # fmt: skip
    own = AuditEvent.objects.get(organization_id=acme.id, action="user.email_changed")
    assert own.actor_id == acme.id


def test_open_invitations_follow_and_those_of_operators_are_withdrawn(
    acme: SeededOrganization, outsider: SeededOrganization, caller: Caller
) -> None:
    """Whoever gets the old address next finds nothing that was meant for the person."""
    row = caller.add(OLD)
    for email in (OLD, NEW):
        invite_member(
            actor=acme.actor, organization=acme.organization, email=f"x.{email}", role="viewer"
        )
    invited, _ = invite_member(
        actor=outsider.actor, organization=outsider.organization, email=OLD, role="admin"
    )
    invite_operator(actor=Actor.for_system("tests"), email=OLD, role="finance")
    rename(caller, row, NEW)
    invited.refresh_from_db()
    assert (invited.email, invited.revoked_at) == (NEW, None)
    event = AuditEvent.objects.get(action="member.invitation_readdressed")
    assert (event.actor_id, event.actor_name) == ("", "SCIM")
    changes = dict(changes_of(NameResolver([event]).details(event)))
    assert changes == {"Email": NEW, "Role": "admin", "Email changed": "yes"}
    assert OperatorInvitation.objects.get().revoked_at is not None
    assert Invitation.objects.filter(email__startswith="x.", revoked_at=None).count() == 2
    rename(caller, row, OLD)
    twice, _ = invite_member(
        actor=outsider.actor, organization=outsider.organization, email=NEW, role="viewer"
    )
    rename(caller, row, NEW)
    invited.refresh_from_db()
    assert invited.state(invited.created_at) == InvitationState.WITHDRAWN
    twice.refresh_from_db()
    assert twice.state(twice.created_at) == InvitationState.OPEN


def expire(invitation: Invitation) -> None:
    Invitation.objects.filter(pk=invitation.pk).update(expires_at=timezone.now())


@pytest.mark.parametrize("case", ["new expired", "old expired", "both expired", "both open"])
def test_of_two_invitations_the_one_that_can_be_accepted_stays(
    outsider: SeededOrganization, caller: Caller, case: str
) -> None:
    row = caller.add(OLD)
    old, new = (
        invite_member(
            actor=outsider.actor, organization=outsider.organization, email=email, role="viewer"
        )[0]
        for email in (OLD, NEW)
    )
    for name, invitation in (("old", old), ("new", new)):
        if case.startswith((name, "both exp")):
            expire(invitation)
    assert rename(caller, row, NEW).status_code == 200
    kept = Invitation.objects.get(organization=outsider.organization, revoked_at=None)
    assert (kept.pk == old.pk, kept.email) == (case in ("new expired", "both expired"), NEW)


def test_a_verification_at_the_same_moment_is_a_conflict(
    caller: Caller, evil: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, free = caller.add(OLD), addresses._free

    def verify_after(*values: Any) -> None:
        free(*values)
        EmailAddress.objects.create(user=evil.owner, email=NEW, verified=True)

    monkeypatch.setattr(addresses, "_free", verify_after)
    assert rename(caller, row, NEW).status_code == 409
    assert addresses_of(User.objects.get(email=OLD)) == [(OLD, True, True)]


@pytest.mark.parametrize("is_verified", [False, True])
def test_a_sign_up_that_nobody_verified_holds_no_address(
    acme: SeededOrganization, caller: Caller, is_verified: bool
) -> None:
    row = caller.add(OLD)
    Client().post("/accounts/signup/", {"email": NEW, "password1": "correct horse battery staple"})
    signed_up = User.objects.get(email=NEW)
    EmailAddress.objects.filter(user=signed_up).update(verified=is_verified)
    assert rename(caller, row, NEW).status_code == (409 if is_verified else 200)
    signed_up.refresh_from_db()
    assert signed_up.is_active == is_verified
    assert (
        User.objects.get(email=NEW if not is_verified else OLD).pk == ScimUser.objects.get().user_id
    )
    closed = AuditEvent.objects.filter(action="sso.unverified_account_closed")
    assert closed.count() == 1 - is_verified


@pytest.mark.parametrize(
    ("email", "status"),
    [
        ("owner@outsider.example", 403),  # of another organization's verified domain
        ("keller@gmail.example", 403),  # of nobody's domain
        ("owner@acme.example", 409),  # another member's
        ("alias@acme.example", 409),  # another account's further address
        ("no address", 400),
    ],
)
def test_what_a_provider_may_not_set_changes_nothing(
    acme: SeededOrganization, evil: SeededOrganization, caller: Caller, email: str, status: int
) -> None:
    EmailAddress.objects.create(user=evil.owner, email="alias@acme.example", verified=True)
    row = caller.add(OLD)
    reply = rename(caller, row, email)
    assert reply.status_code == status
    assert caller.get(f"/Users/{row['id']}")["userName"] == OLD
    assert addresses_of(User.objects.get(email=OLD)) == [(OLD, True, True)]
    put = caller.call("put", f"/Users/{row['id']}", {"schemas": [USER], "userName": email})
    assert put.status_code == status


@pytest.mark.parametrize("case", ["operator", "private", "lost domain", "inactive"])
def test_an_account_that_the_provider_does_not_manage_keeps_its_address(
    acme: SeededOrganization,
    evil: SeededOrganization,
    caller: Caller,
    names: NameServer,
    case: str,
) -> None:
    row = caller.add(OLD)
    person = User.objects.get(email=OLD)
    fields: dict[str, Any] = {
        "operator": {"operator_role": "viewer"},
        "private": {"email": "keller@gmail.example"},
        "inactive": {"is_active": False},
    }.get(case, {"email": "keller@outsider.example"})
    User.objects.filter(pk=person.pk).update(**fields)
    person.refresh_from_db()
    before = person.email
    assert rename(caller, row, NEW).status_code == 200
    person.refresh_from_db()
    assert person.email == before
    assert ScimUser.objects.get(id=row["id"]).user_name == NEW


def test_an_address_in_another_verified_domain_of_the_organization_is_fine(
    acme: SeededOrganization, caller: Caller, names: NameServer
) -> None:
    verify(acme, names, "acme-labs.example")
    row = caller.add(OLD)
    assert rename(caller, row, "keller@acme-labs.example").status_code == 200
    assert User.objects.filter(email="keller@acme-labs.example").exists()


def test_a_sign_in_brings_the_new_address(
    connected: SsoConnection, oidc: OidcProvider, client: Client
) -> None:
    sign_in(Client(), oidc, OLD, subject="one")
    person = User.objects.get(email=OLD)
    sign_in(client, oidc, NEW, subject="one")
    person.refresh_from_db()
    assert (who(client), person.email) == (person.id, NEW)
    newcomer = Client()
    sign_in(newcomer, oidc, OLD, subject="two")
    assert who(newcomer) == User.objects.get(email=OLD).id != person.id


@pytest.mark.parametrize("way", ["SCIM", "SSO"])
def test_pages_emails_and_sign_ins_know_the_new_address(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client, way: str
) -> None:
    provider = Caller(create_scim_token(actor=acme.actor, organization=acme.organization))
    if way == "SCIM":
        rename(provider, provider.add(OLD), NEW)
    else:
        sign_in(Client(), oidc, OLD, subject="one")
    sign_in(client, oidc, NEW, subject="one")
    person = User.objects.get(email=NEW)
    assert who(client) == person.id
    invite_member(actor=acme.actor, organization=acme.organization, email=OLD, role="viewer")
    provider.add(OLD)
    hired = User.objects.get(email=OLD)
    browser = acme.browser()
    team = browser.get(f"/{acme.id}/team").content.decode()
    assert team.count(NEW) and team.count(OLD)
    assert NEW in browser.get(f"/{acme.id}/audit-log").content.decode()
    change_role(actor=acme.actor, membership=acme.seat(person), role="viewer")
    assert delivered()[-1].to == [NEW]
    change_role(actor=acme.actor, membership=acme.seat(hired), role="viewer")
    assert delivered()[-1].to == [OLD]


def test_a_sign_in_with_an_address_that_is_taken_keeps_the_persons_own(
    connected: SsoConnection, acme: SeededOrganization, oidc: OidcProvider, client: Client
) -> None:
    sign_in(Client(), oidc, OLD, subject="one")
    person = User.objects.get(email=OLD)
    sign_in(client, oidc, acme.owner.email, subject="one")
    person.refresh_from_db()
    assert (who(client), person.email) == (person.id, OLD)
    kept = AuditEvent.objects.get(action="sso.address_kept")
    assert "belongs to another account" in kept.details["reason"]


def test_scim_decides_the_address_where_it_manages_the_person(
    connected: SsoConnection, caller: Caller, oidc: OidcProvider, client: Client
) -> None:
    caller.add(OLD)
    sign_in(Client(), oidc, OLD, subject="one")
    sign_in(client, oidc, NEW, subject="one")
    assert who(client) == User.objects.get(email=OLD).id


def of_somebody_else(caller: Caller, email: str, way: str) -> Any:
    """Let a provider give the address of somebody who left to a person with another id."""
    row = caller.add(email, externalId="" if way == "no id" else "one")
    if way == "suspended":
        caller.patch(f"/Users/{row['id']}", {"op": "replace", "path": "active", "value": False})
        sent = {"schemas": [USER], "userName": email, "externalId": "two", "active": True}
        return caller.call("put", f"/Users/{row['id']}", sent).json()
    assert caller.call("delete", f"/Users/{row['id']}").status_code == 204
    if way == "renamed":
        renamed = caller.add("john@acme.example", externalId="two")
        assert rename(caller, renamed, email).status_code == 200
        return renamed
    return caller.add(email, externalId={"same": "one", "no id": ""}.get(way, "two"))


@pytest.mark.parametrize("way", ["another id", "no id", "suspended", "renamed", "same"])
@pytest.mark.parametrize("further", ["", "ada@home.example"])
def test_an_address_goes_to_the_next_person_without_the_account(
    acme: SeededOrganization, caller: Caller, way: str, further: str
) -> None:
    """The passkey, password and other memberships stay with the person who left."""
    leaver = User.objects.create_user(OLD, "correct horse battery staple")
    EmailAddress.objects.create(user=leaver, email=OLD, verified=True, primary=True)
    if further:
        EmailAddress.objects.create(user=leaver, email=further, verified=True)
    Authenticator.objects.create(user=leaver, type="webauthn", data={})
    row = of_somebody_else(caller, OLD, way)
    holder = User.objects.get(email=OLD)
    assert ScimUser.objects.get(id=row["id"]).user == holder
    assert Membership.objects.get(organization=acme.organization, user=holder)
    assert addresses_of(holder)[-1 if way == "same" else 0] == (OLD, True, True)
    leaver.refresh_from_db()
    assert leaver.has_usable_password()
    assert Authenticator.objects.get().user == leaver
    if way == "same":
        assert holder == leaver
        return
    assert holder != leaver
    assert leaver.email == further or leaver.email.endswith("@released.invalid")
    assert addresses_of(leaver) == ([(further, True, True)] if further else [])


def test_an_address_that_the_holder_changes_meanwhile_is_not_overwritten(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = caller.add(OLD, externalId="one")
    leaver = User.objects.get(email=OLD)
    caller.call("delete", f"/Users/{row['id']}")
    has_left = reclaim._has_left

    def meanwhile(organization: Organization, user: User, external_id: str) -> bool:
        """The leaver's own change is committed once their account was found by its address."""
        User.objects.filter(pk=leaver.pk).update(email="ada@home.example")
        return has_left(organization, user, external_id)

    monkeypatch.setattr(reclaim, "_has_left", meanwhile)
    caller.add(OLD, externalId="two")
    leaver.refresh_from_db()
    assert leaver.email == "ada@home.example"
    assert User.objects.get(email=OLD) != leaver


def test_a_sign_in_gives_no_account_of_a_person_who_left(
    connected: SsoConnection, caller: Caller, oidc: OidcProvider, client: Client
) -> None:
    row = caller.add(OLD)
    leaver = User.objects.get(email=OLD)
    sign_in(Client(), oidc, OLD, subject="one")
    caller.call("delete", f"/Users/{row['id']}")
    sign_in(client, oidc, OLD, subject="two")
    assert who(client) == User.objects.get(email=OLD).id != leaver.id
