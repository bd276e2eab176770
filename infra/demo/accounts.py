"""The operator, the demo organization with its owner, and its first API key."""

from dataclasses import dataclass

from allauth.account.models import EmailAddress
from django.db import transaction

from control.accounts.models import User, user_by_email
from control.api_keys import selectors as keys
from control.api_keys.models import Scope
from control.api_keys.services import create_api_key
from control.organizations import selectors as tenants
from control.organizations.models import Organization, Project
from control.organizations.services import create_organization
from control.permissions import Actor

ORGANIZATION_NAME = "Demo"
KEY_NAME = "First key"


@dataclass(frozen=True, slots=True)
class DemoTenant:
    """The things that a stranger begins with; `api_key` only when it was made just now."""

    organization_id: str
    project_id: str
    api_key: str | None


def seed_operator(email: str, password: str) -> User:
    """Make an operator, or leave the one of this address as they are."""
    known = user_by_email(email)
    found = known or User.objects.create_superuser(email, password)
    _verify(found)
    return found


def _verify(user: User) -> None:
    """Take a person's address as theirs: it was chosen by who installs."""
    EmailAddress.objects.get_or_create(
        user=user, email=user.email, defaults={"verified": True, "primary": True}
    )


@transaction.atomic
def seed_demo_tenant(actor: Actor, email: str, password: str) -> DemoTenant:
    """Make the demo organization with owner, project and key, or find them."""
    owner = user_by_email(email) or User.objects.create_user(email, password)
    _verify(owner)
    organization = _organization(actor, owner)
    project = tenants.default_project(organization)
    return DemoTenant(organization.id, project.id, _first_key(actor, organization, project))


def _organization(actor: Actor, owner: User) -> Organization:
    known = tenants.organizations_of(owner)
    if known:
        return known[0]
    return create_organization(actor=actor, name=ORGANIZATION_NAME, owner=owner)


def _first_key(actor: Actor, organization: Organization, project: Project) -> str | None:
    if keys.keys(organization, with_revoked=True).exists():
        return None
    scopes = (Scope.INFERENCE, Scope.MANAGE)
    return create_api_key(actor=actor, project=project, name=KEY_NAME, scopes=scopes)[1]
