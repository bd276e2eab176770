"""A person's address as their organization's identity provider changes it: it follows the person,
and the address that they give up is free for the next one."""

from allauth.account.models import EmailAddress
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext

from control.accounts.models import User, locked_user, user_by_email
from control.accounts.notifications import SecurityEmail, notify
from control.accounts.signals import send_account_event
from control.audit import services as audit
from control.errors import Conflict
from control.operators.selectors import open_invitations as open_operator_invitations
from control.operators.services import revoke_operator_invitation
from control.organizations.members import readdress_invitations
from control.organizations.models import Organization
from control.permissions import Actor, Role
from control.sso import provisioning, selectors
from control.sso.reclaim import close_unverified, is_unverified, reclaim


@transaction.atomic
def change_address(*, actor: Actor, organization: Organization, user: User, email: str) -> None:
    """Give a user, whom the organization's provider manages, another address: mails go there,
    sessions stay. Open invitations to the old address follow; those of operators are withdrawn.

    Both addresses must be of the organization's verified domains. The account of an operator, and
    one whose owner has chosen an address elsewhere, keep theirs. An account with the new address
    that nobody verified is closed, and one that the provider removed goes on without it. Raises
    NotPermitted for a new address of another domain, Conflict for one that another account holds.
    """
    address = provisioning.own_address(organization, email)
    user = locked_user(user.id)
    before = user.email
    may_change = selectors.may_be_opened(user) and selectors.is_own(organization, user)
    if address == before or not may_change:
        return
    reclaim(actor, organization, address)
    _free(actor, organization, user, address)
    # First: the old address still is this person's, and so is the email to it.
    _notify(organization, before, address)
    user.email = address
    try:
        with transaction.atomic():
            user.save(update_fields=["email"])
            _replace_address(user, before)
    except IntegrityError as error:  # Somebody signed up with the address, or verified it.
        raise _taken(address) from error
    readdress_invitations(actor=actor, before=before, after=address)
    for invitation in open_operator_invitations().filter(email=before):
        revoke_operator_invitation(actor=Actor.for_system(actor.name), invitation=invitation)
    send_account_event(
        user, "user.email_changed", by=actor, before={"email": before}, after={"email": address}
    )


def follow_sign_in(*, organization: Organization, user: User, email: str) -> None:
    """Give a user the address that the provider vouched for at their sign-in, unless SCIM decides
    it. If another account holds the address, they keep theirs, which is recorded."""
    is_of_scim = selectors.scim_users(organization).filter(user=user).exists()
    if is_of_scim or email.strip().lower() == user.email:
        return
    actor = provisioning.provider(organization, "SSO", Role.ADMIN)
    try:
        change_address(actor=actor, organization=organization, user=user, email=email)
    except Conflict as taken:
        audit.record(
            actor=actor,
            action="sso.address_kept",
            target_kind="user",
            target_id=user.id,
            target_name=user.email,
            organization_id=organization.id,
            details={"email": user.email, "reason": taken.message},
        )
    user.refresh_from_db(fields=["email"])


def _free(actor: Actor, organization: Organization, user: User, address: str) -> None:
    """Take an address from an account that could not verify it, since its domain's owner decides
    whose it is. Raises Conflict if another account holds it."""
    holder = user_by_email(address)
    if holder is not None and is_unverified(organization, holder):
        close_unverified(holder)
        audit.record(
            actor=actor,
            action="sso.unverified_account_closed",
            target_kind="user",
            target_id=holder.id,
            target_name=address,
            organization_id=organization.id,
        )
        holder = None
    others = EmailAddress.objects.filter(email__iexact=address, verified=True).exclude(user=user)
    if holder is not None or others.exists():
        raise _taken(address)


def _taken(address: str) -> Conflict:
    return Conflict(f"{address} belongs to another account.", param="userName")


def _replace_address(user: User, before: str) -> None:
    """Make the user's address the verified primary one, and delete the old one."""
    addresses = EmailAddress.objects.filter(user=user)
    addresses.filter(email__iexact=before).delete()
    addresses.update(primary=False)
    EmailAddress.objects.update_or_create(
        user=user, email=user.email, defaults={"verified": True, "primary": True}
    )


def _notify(organization: Organization, before: str, after: str) -> None:
    """Email both addresses about the change."""
    words = gettext(
        "The identity provider of %(organization)s changed the address of your account from"
        " %(before)s to %(after)s. Sign in with the new address from now on; emails go there."
    )
    content = SecurityEmail(
        gettext("Your email address was changed"),
        words % {"organization": organization.name, "before": before, "after": after},
        gettext("If this is a mistake, contact an owner of the organization."),
        "account_email",
        gettext("View your addresses"),
    )
    for address in (before, after):
        notify(content, to=address, now=timezone.now(), who=organization.name)
