"""Create an organization for each person who signs up, in the same transaction."""

from control.accounts.adapter import AccountAdapter
from control.accounts.models import NAME_MAX, User
from control.organizations.services import create_organization
from control.permissions import Actor


class SignupAdapter(AccountAdapter):
    """Adds an organization, a default project and the owner's membership to a sign-up."""

    def after_signup(self, user: User) -> None:
        """Create the organization, which its owner may rename."""
        name = organization_name(user.email)
        create_organization(actor=Actor.for_user(user), name=name, owner=user)


def organization_name(email: str) -> str:
    """Return the initial name of a new user's organization, such as `ada's organization`."""
    owned = "'s organization"
    return email.partition("@")[0][: NAME_MAX - len(owned)] + owned
