"""The welcome credit: once per person, as soon as their address is verified."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.account.signals import email_confirmed
from django.test import Client

from billing.credit.models import CreditGrant, Welcome
from billing.credit.selectors import balance_nanos
from control.accounts.models import User
from control.organizations.members import accept_invitation, invite_member
from control.organizations.models import Membership, Organization
from control.organizations.services import create_organization
from control.permissions import Actor, Role
from tests.fixtures.mails import delivered, link_in

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
CREDIT = 5_000_000_000


def make_person(email: str = "ada@acme.test", *, is_verified: bool = True) -> User:
    user = User.objects.create_user(email)
    EmailAddress.objects.create(user=user, email=email, verified=is_verified, primary=True)
    return user


def found(owner: User, name: str = "Acme") -> Organization:
    return create_organization(actor=Actor.for_system("tests"), name=name, owner=owner)


def verify(user: User) -> None:
    address = EmailAddress.objects.get(user=user)
    address.verified = True
    address.save()
    email_confirmed.send(EmailAddress, request=None, email_address=address)


def test_a_verified_person_is_welcomed_with_their_first_organization():
    organization = found(make_person())
    grant = CreditGrant.objects.get()
    assert (grant.kind, grant.amount_nanos) == ("promotional", CREDIT)
    assert balance_nanos(organization.id) == CREDIT


def test_twenty_organizations_of_one_person_get_one_credit():
    ada = make_person()
    for number in range(20):
        found(ada, f"Acme {number}")
    assert CreditGrant.objects.count() == Welcome.objects.count() == 1


def test_an_unverified_person_gets_it_when_they_verify():
    ada = make_person(is_verified=False)
    first = found(ada)
    found(ada, "Second")
    assert not CreditGrant.objects.exists()
    for _ in range(2):
        verify(ada)
    assert CreditGrant.objects.get().organization_id == first.id


def test_somebody_without_any_address_gets_nothing():
    found(User.objects.create_user("operator@acme.test"))
    assert not CreditGrant.objects.exists()


def test_a_member_who_owns_nothing_is_welcomed_when_they_do():
    ada, bob = make_person(), make_person("bob@acme.test", is_verified=False)
    organization = found(ada)
    owner = Actor("user", ada.id, ada.email, ada.id, organization.id, Role.OWNER)
    _, secret = invite_member(
        actor=owner, organization=organization, email=bob.email, role=Role.VIEWER
    )
    accept_invitation(user=bob, secret=secret)
    verify(bob)
    assert not Welcome.objects.filter(user_id=bob.id).exists()
    found(bob, "Bob's")
    assert Welcome.objects.filter(user_id=bob.id).exists()


def test_the_second_owner_of_an_organization_is_a_person_of_their_own():
    ada, bob = make_person(), make_person("bob@acme.test", is_verified=False)
    organization = found(ada)
    Membership.objects.create(organization=organization, user=bob, role=Role.OWNER)
    verify(bob)
    assert balance_nanos(organization.id) == 2 * CREDIT


def test_without_a_credit_in_the_settings_nobody_is_welcomed(settings: Any):
    settings.CONFIG = replace(settings.CONFIG, signup_credit_nanos=0)
    found(make_person())
    assert not CreditGrant.objects.exists()


def test_signing_up_is_welcomed_when_the_mailed_link_is_followed(client: Client):
    form = {"email": "Ada@Example.com", "password1": "correct horse battery staple"}
    client.post("/accounts/signup/", form)
    organization = Organization.objects.get()
    assert balance_nanos(organization.id) == 0
    client.post(urlsplit(link_in(delivered()[0], "/confirm-email/")).path)
    assert balance_nanos(organization.id) == CREDIT
    assert Welcome.objects.get().user_id == User.objects.get().id
