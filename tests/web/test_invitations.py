"""The mail of an invitation leads to a page that accepts it."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.db.models import InvitationState
from control.operators.models import OperatorInvitation
from control.operators.services import invite_operator
from control.organizations.members import invite_member
from control.organizations.models import Invitation, Membership
from control.permissions import Actor, Role
from tests.fixtures.html_forms import form_to
from tests.fixtures.mails import delivered, link_in
from tests.fixtures.organizations import SeededOrganization

pytestmark = pytest.mark.integration

EMAIL = "guest@acme.example"


@pytest.fixture
def link(org: SeededOrganization) -> str:
    """The path in the mail."""
    invite_member(
        actor=Actor.for_system("tests"),
        organization=org.organization,
        email=EMAIL,
        role=Role.VIEWER,
    )
    return urlsplit(link_in(delivered()[-1], "/invitations/")).path


def test_the_invited_join_by_the_link_in_the_mail(
    client: Client, org: SeededOrganization, link: str
) -> None:
    guest = User.objects.create_user(EMAIL)
    client.force_login(guest)
    assert b"Accept the invitation" in client.get(link).content
    reply = client.post(link)
    assert reply["location"] == f"/{org.organization.id}/overview"
    assert Membership.objects.get(user=guest).role == Role.VIEWER
    assert client.post(link).status_code == 404


def test_who_is_not_signed_in_comes_back_after_signing_in(client: Client, link: str) -> None:
    page = client.get(link).content.decode()
    assert f'href="/accounts/login/?next={link}"' in page
    assert f'href="/accounts/signup/?next={link}"' in page


def test_who_was_signed_out_comes_back_to_accept(client: Client, link: str) -> None:
    client.force_login(User.objects.create_user(EMAIL))
    form = form_to(client.get(link).content, link)
    client.logout()
    assert client.post(link, form.values)["location"] == f"/accounts/login/?next={quote(link, '')}"


def test_an_outsider_cannot_use_anothers_invitation(stranger: Client, link: str) -> None:
    reply = stranger.post(link)
    assert reply.status_code == 404
    assert "is for another address" in reply.content.decode()
    assert f'name="next" value="{link}"' in reply.content.decode()


ACCEPT, SIGN_IN, OPEN = "Accept the invitation", "Sign in", "Open Acme Research"
NEXT = {
    (InvitationState.OPEN, "nobody"): "To accept, sign in as guest@acme.example",
    (InvitationState.OPEN, "guest"): ACCEPT,
    (InvitationState.OPEN, "other"): "is for another address",
    (InvitationState.OPEN, "member"): OPEN,
    (InvitationState.EXPIRED, "nobody"): "ask for a new invitation to guest@acme.example",
    (InvitationState.EXPIRED, "guest"): "ask for a new invitation to guest@acme.example",
    (InvitationState.EXPIRED, "other"): "ask for a new invitation to guest@acme.example",
    (InvitationState.EXPIRED, "member"): OPEN,
    (InvitationState.WITHDRAWN, "nobody"): "was withdrawn",
    (InvitationState.WITHDRAWN, "guest"): "was withdrawn",
    (InvitationState.WITHDRAWN, "other"): "was withdrawn",
    (InvitationState.WITHDRAWN, "member"): OPEN,
    (InvitationState.USED, "nobody"): "Sign in as guest@acme.example to open Acme Research",
    (InvitationState.USED, "guest"): "is not a member of Acme Research",
    (InvitationState.USED, "other"): "is not a member of Acme Research",
    (InvitationState.USED, "member"): OPEN,
}
"""The next step that each state shows to each viewer."""
NOW = timezone.now()
ENDS: dict[InvitationState, dict[str, Any]] = {
    InvitationState.OPEN: {},
    InvitationState.EXPIRED: {"expires_at": NOW - timedelta(days=1)},
    InvitationState.WITHDRAWN: {"revoked_at": NOW},
    InvitationState.USED: {"accepted_at": NOW},
}


def view_as(client: Client, viewer: str, member: User) -> None:
    """Sign in as one of `NEXT`."""
    if viewer == "member":
        client.force_login(member)
    elif viewer != "nobody":
        client.force_login(User.objects.create_user(f"{viewer}@acme.example"))


@pytest.mark.parametrize(("state", "viewer"), NEXT)
def test_the_page_tells_the_offer_its_state_and_the_next_step(
    client: Client, org: SeededOrganization, state: InvitationState, viewer: str
) -> None:
    _, secret = invite_member(
        actor=org.actor, organization=org.organization, email=EMAIL, role=Role.VIEWER
    )
    Invitation.objects.update(**ENDS[state])
    view_as(client, viewer, org.owner)
    reply = client.get(f"/invitations/{secret}")
    page = reply.content.decode()
    assert reply.status_code == 200
    assert reply["cache-control"].count("no-store") == 1
    for told in ("Join Acme Research", org.owner.email, "Viewer", EMAIL, str(state.label)):
        assert told in page, told
    assert NEXT[state, viewer] in page
    assert (ACCEPT in page) == ((state, viewer) == (InvitationState.OPEN, "guest"))


@pytest.mark.parametrize(("state", "viewer"), NEXT)
def test_an_operators_invitation_tells_the_same(
    client: Client, db: None, state: InvitationState, viewer: str
) -> None:
    owner = User.objects.create_superuser("owner@penstock.test")
    _, secret = invite_operator(actor=Actor.for_user(owner), email=EMAIL, role="finance")
    OperatorInvitation.objects.update(**ENDS[state])
    view_as(client, viewer, owner)
    page = client.get(f"/operators/invitations/{secret}").content.decode()
    name = "the operators of this platform"
    for told in (f"Join {name}", owner.email, "Finance", EMAIL, str(state.label)):
        assert told in page, told
    assert NEXT[state, viewer].replace("Acme Research", name) in page


@pytest.mark.parametrize("path", ["/invitations/nothing", "/operators/invitations/nothing"])
def test_a_link_that_belongs_to_no_invitation_says_so(client: Client, db: None, path: str) -> None:
    reply = client.get(path)
    assert reply.status_code == 404
    assert "belongs to no invitation" in reply.content.decode()
