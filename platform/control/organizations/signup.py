"""Whoever signs up gets an organization of their own, in the same transaction."""

from control.accounts.adapter import AccountAdapter
from control.accounts.models import NAME_MAX, User
from control.organizations.services import create_organization
from control.permissions import Actor


class SignupAdapter(AccountAdapter):
    """Signs people up: user, organization, default project and owner's membership."""

    def after_signup(self, user: User) -> None:
        """Create the organization, which its owner may rename."""
        name = organization_name(user.email)
        create_organization(actor=Actor.for_user(user), name=name, owner=user)


def organization_name(email: str) -> str:
    """Return what to call the organization of a person who just signed up: `ada's`."""
    return f"{email.partition('@')[0][: NAME_MAX - 2]}'s"
