"""The mail of an invitation leads to a page that accepts it."""

from urllib.parse import urlsplit

import pytest
from django.test import Client

from control.accounts.models import User
from control.organizations.members import invite_member
from control.organizations.models import Membership
from control.permissions import Actor, Role
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
    assert client.get(link)["location"].startswith(f"/accounts/login/?next={link[:13]}")


def test_an_outsider_cannot_use_anothers_invitation(stranger: Client, link: str) -> None:
    assert stranger.post(link).status_code == 404
