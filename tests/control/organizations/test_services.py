"""Organizations, projects and members: what their services promise."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import ProgrammingError, connection
from django.utils import timezone

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound, ServiceError
from control.feed.selectors import last_record
from control.organizations import selectors
from control.organizations.members import (
    accept_invitation,
    change_role,
    invite_member,
    remove_member,
    revoke_invitation,
)
from control.organizations.models import BillingMode, Invitation, Organization, Project
from control.organizations.projects import (
    archive_project,
    create_project,
    rename_project,
    set_project_limit,
)
from control.organizations.services import (
    create_organization,
    rename_organization,
    set_organization_limit,
    set_organization_terms,
    suspend_organization,
)
from control.organizations.signals import organization_created
from control.permissions import Actor, Role
from serving.contract.codec import decode
from serving.contract.records import OrganizationRecord
from tests.fixtures.mails import delivered
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_organization


def test_a_new_organization_has_an_owner_a_project_and_is_published(
    org: SeededOrganization,
) -> None:
    assert org.seat(org.owner).role == Role.OWNER
    assert org.project.name == "Default"
    record = last_record("organization", org.id)
    assert record is not None
    assert f'"budget_ids":["balance:{org.id}"]' in record
    assert last_record("project", org.project.id) is not None


@pytest.mark.django_db
def test_the_layers_above_hear_of_it_inside_the_transaction() -> None:
    """What they refuse is undone as a whole."""

    def refuse(**_: Any) -> None:
        raise Conflict("no room")

    organization_created.connect(refuse)
    try:
        with pytest.raises(Conflict):
            make_organization()
    finally:
        organization_created.disconnect(refuse)
    assert not Organization.objects.exists()


def test_a_postpaid_organization_does_not_raise_its_own_limit(
    org: SeededOrganization,
) -> None:
    limit: Any = {"organization": org.organization, "spend_limit_nanos": 10**12}
    set_organization_limit(actor=org.actor, **limit)
    set_organization_terms(actor=OPERATOR, billing_mode=BillingMode.POSTPAID, weight=2, **limit)
    with pytest.raises(NotPermitted):
        set_organization_limit(actor=org.actor, **limit)


def test_an_organization_has_a_share_of_its_own_once_operators_gave_it_terms(
    org: SeededOrganization,
) -> None:
    for mode, weight, is_paying in (
        (BillingMode.PREPAID, 1, False),
        (BillingMode.POSTPAID, 1, True),
        (BillingMode.PREPAID, 2, True),
    ):
        set_organization_terms(
            actor=OPERATOR, organization=org.organization, billing_mode=mode,
            spend_limit_nanos=None, weight=weight,
        )  # fmt: skip
        record = last_record("organization", org.id) or ""
        assert decode(record.encode(), OrganizationRecord).is_paying is is_paying


def test_only_operators_suspend(org: SeededOrganization) -> None:
    with pytest.raises(NotPermitted):
        suspend_organization(actor=org.actor, organization=org.organization, reason="abuse")


def test_a_project_is_a_budget_where_it_has_a_limit(org: SeededOrganization) -> None:
    project = create_project(
        actor=org.actor, organization=org.organization, name="Search", spend_limit_nanos=7
    )
    limited = last_record("project", project.id)
    set_project_limit(actor=org.actor, project=project, spend_limit_nanos=None)
    assert limited is not None
    assert f'"budget_ids":["limit:{project.id}"]' in limited
    assert '"budget_ids":[]' in (last_record("project", project.id) or "")


def test_a_projects_name_is_free_again_once_it_is_archived(org: SeededOrganization) -> None:
    def create() -> Project:
        return create_project(actor=org.actor, organization=org.organization, name="Search")

    project = create()
    with pytest.raises(Conflict):
        create()
    archive_project(actor=org.actor, project=project)
    assert create().id != project.id
    with pytest.raises(Conflict, match="archived"):
        rename_project(actor=org.actor, project=project, name="Old")


def invite(org: SeededOrganization, email: str = "new@example.com", role: str = Role.VIEWER) -> Any:
    return invite_member(actor=org.actor, organization=org.organization, email=email, role=role)


def test_an_invitation_goes_out_by_mail_and_is_taken_once(org: SeededOrganization) -> None:
    _, secret = invite(org)
    user = User.objects.create_user("new@example.com")
    assert secret in str(delivered()[0].body)
    assert accept_invitation(user=user, secret=secret).role == Role.VIEWER
    with pytest.raises(ObjectNotFound):
        accept_invitation(user=user, secret=secret)


def test_an_invitation_is_for_one_address(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    _, secret = invite(org)
    with pytest.raises(ObjectNotFound):
        accept_invitation(user=outsider.owner, secret=secret)


@pytest.mark.parametrize("ending", ["revoked", "expired"])
def test_an_ended_invitation_opens_nothing(org: SeededOrganization, ending: str) -> None:
    invitation, secret = invite(org)
    if ending == "revoked":
        revoke_invitation(actor=org.actor, invitation=invitation)
    else:
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(ObjectNotFound):
        accept_invitation(user=User.objects.create_user("new@example.com"), secret=secret)


def test_nobody_is_invited_twice_or_into_a_strange_role(org: SeededOrganization) -> None:
    invite(org)
    with pytest.raises(Conflict):
        invite(org, "NEW@example.com")
    with pytest.raises(Conflict):
        invite(org, org.owner.email)
    with pytest.raises(InvalidValue):
        invite(org, "other@example.com", "king")
    with pytest.raises(InvalidValue):
        invite(org, "no address")


def test_an_expired_invitation_is_renewed(org: SeededOrganization) -> None:
    """The old secret opens nothing any more, the new one does, and one invitation is open."""
    _, old = invite(org)
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    renewed, secret = invite(org, role=Role.ADMIN)
    assert [each.id for each in selectors.open_invitations(org.organization)] == [renewed.id]
    user = User.objects.create_user("new@example.com")
    with pytest.raises(ObjectNotFound):
        accept_invitation(user=user, secret=old)
    assert accept_invitation(user=user, secret=secret).role == Role.ADMIN
    assert AuditEvent.objects.filter(action="member.invitation_revoked").count() == 1


def test_a_renewal_does_not_withdraw_another_houses_invitation(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    for one in (org, outsider):
        invite(one)
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    invite(org)
    assert Invitation.objects.filter(organization_id=outsider.id, revoked_at=None).count() == 1


def test_an_admin_neither_makes_nor_unmakes_owners(org: SeededOrganization) -> None:
    admin = org.actor_of(org.join(Role.ADMIN))
    seat = org.seat(org.owner)
    with pytest.raises(NotPermitted):
        change_role(actor=admin, membership=seat, role=Role.VIEWER)
    with pytest.raises(NotPermitted):
        remove_member(actor=admin, membership=seat)
    with pytest.raises(NotPermitted):
        invite_member(
            actor=admin, organization=org.organization, email="x@example.com", role=Role.OWNER
        )


def test_the_last_owner_stays(org: SeededOrganization) -> None:
    seat = org.seat(org.owner)
    with pytest.raises(Conflict):
        remove_member(actor=org.actor, membership=seat)
    with pytest.raises(Conflict):
        change_role(actor=org.actor, membership=seat, role=Role.ADMIN)


def test_anybody_else_may_leave(org: SeededOrganization) -> None:
    viewer = org.join(Role.VIEWER)
    remove_member(actor=org.actor_of(viewer), membership=org.seat(viewer))
    with pytest.raises(ObjectNotFound):
        org.seat(viewer)


@pytest.mark.integration
@pytest.mark.usefixtures("pooled")
def test_two_owners_who_leave_at_once_do_not_both_leave() -> None:
    org = make_organization()
    second = org.join(Role.OWNER)
    seats = [org.seat(org.owner), org.seat(second)]

    def leave(number: int) -> None:
        actor = org.actor_of(seats[number].user)
        with closing(connection), suppress(ServiceError):
            remove_member(actor=actor, membership=seats[number])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(leave, range(2)))
    assert selectors.owner_count(org.organization) == 1


def test_what_is_done_is_audited_without_secrets(org: SeededOrganization) -> None:
    _, secret = invite(org)
    _, key = org.mint()
    entries = list(AuditEvent.objects.filter(organization_id=org.id))
    actions = {entry.action for entry in entries}
    assert {"organization.created", "member.invited", "api_key.created"} <= actions
    assert all(secret not in str(each.details) and key not in str(each.details) for each in entries)


CHANGES = ["UPDATE audit_event SET action = 'nothing'", "DELETE FROM audit_event"]


@pytest.mark.parametrize("change", CHANGES)
def test_the_application_may_not_change_an_audit_entry(
    org: SeededOrganization, change: str
) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"), connection.cursor() as cursor:
        cursor.execute(change)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", CHANGES)
def test_an_audit_entry_is_written_once(
    owner_connection: psycopg.Connection, org: SeededOrganization, change: str
) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match=r"Cannot (update|delete)"):
        owner_connection.execute(change)


def test_the_platform_itself_may_act(org: SeededOrganization) -> None:
    rename_organization(
        actor=Actor.for_system("seed"), organization=org.organization, name="Seeded"
    )
    assert AuditEvent.objects.first().actor_name == "seed"  # type: ignore[union-attr]


def test_only_operators_leave_the_owner_to_an_invitation(org: SeededOrganization) -> None:
    with pytest.raises(NotPermitted):
        create_organization(actor=org.actor, name="Nobody's", owner=None)
    assert create_organization(actor=OPERATOR, name="Acme 2", owner=None).memberships.count() == 0
