"""Members of organizations: invite, accept, change a role, remove."""

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, cast

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext, ngettext

from control.accounts.models import User
from control.accounts.notifications import SecurityEmail, notify
from control.audit import services as audit
from control.db.models import InvitationState
from control.db.row_changes import plain_values
from control.errors import Conflict, InvalidValue, ObjectNotFound
from control.feed.services import FeedRef, publish
from control.mail.services import absolute, send_mail
from control.organizations import selectors
from control.organizations.models import Invitation, Membership, Organization
from control.organizations.signals import membership_changed
from control.permissions import Actor, Permission, Role, can, require

INVITATION_DAYS = 7


@transaction.atomic
def invite_member(
    *, actor: Actor, organization: Organization, email: str, role: str
) -> tuple[Invitation, str]:
    """Email an invitation; return it and the secret that accepts it, which is not stored.

    An expired invitation to the same address is revoked. Raises Conflict if the person is a member
    or has an invitation that has not expired.
    """
    invitation, secret = _create_invitation(actor, organization, email.strip().lower(), role)
    send_mail(
        template="invitation",
        to=[invitation.email],
        context={
            "inviter": actor.name,
            "organization": organization.name,
            "role": invitation.get_role_display().lower(),
            "accept_url": absolute(f"/invitations/{secret}"),
            "days": INVITATION_DAYS,
        },
        key=invitation.id,
        organization_id=organization.id,
        now=invitation.created_at,
    )
    return invitation, secret


def _create_invitation(
    actor: Actor, organization: Organization, email: str, role: str
) -> tuple[Invitation, str]:
    _require_for_role(actor, organization, role)
    organization = selectors.locked_organization(organization.id)
    require_email(email)
    if selectors.is_member(organization, email):
        raise Conflict(f"{email} is already a member.", param="email")
    now = timezone.now()
    expired = selectors.expired_invitation(organization, email, now)
    if expired is not None:
        revoke_invitation(actor=actor, invitation=expired)
    if selectors.open_invitations(organization).filter(email=email).exists():
        raise Conflict(f"{email} was already invited.", param="email")
    secret = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        organization=organization,
        email=email,
        role=role,
        digest=invitation_digest(secret),
        invited_by_id=actor.user_id,
        expires_at=now + timedelta(days=INVITATION_DAYS),
    )
    _record(
        actor, "member.invited", "invitation", invitation, email=email, role=role,
        **plain_values({"expires_at": invitation.expires_at}),
    )  # fmt: skip
    return invitation, secret


@transaction.atomic
def revoke_invitation(*, actor: Actor, invitation: Invitation) -> None:
    """Withdraw an invitation, open or expired. Raises Conflict if it was used or withdrawn."""
    require(actor, invitation.organization_id, Permission.MEMBERS_WRITE)
    now, invitation = timezone.now(), selectors.locked_invitation(invitation.id)
    if (state := invitation.state(now)) in (InvitationState.USED, InvitationState.WITHDRAWN):
        raise Conflict(f"The invitation to {invitation.email} is {state} already.")
    _withdraw(actor, invitation, now)


@transaction.atomic
def resend_invitation(*, actor: Actor, invitation: Invitation) -> tuple[Invitation, str]:
    """Replace an invitation by a new one with a new secret and a full lifetime, and email it."""
    revoke_invitation(actor=actor, invitation=invitation)
    return invite_member(
        actor=actor,
        organization=invitation.organization,
        email=invitation.email,
        role=invitation.role,
    )


@transaction.atomic
def accept_invitation(*, user: User, secret: str) -> Membership:
    """Accept the invitation that a secret belongs to, for this user's address.

    Raises ObjectNotFound if the secret is unknown, used, withdrawn, expired or another person's.
    """
    now = timezone.now()
    found = selectors.invitation_by_digest(invitation_digest(secret))
    invitation = require_acceptable(found and selectors.locked_invitation(found.id), user, now)
    invitation.accepted_at = now
    invitation.save(update_fields=["accepted_at"])
    organization = invitation.organization
    if selectors.is_member(organization, user.email):
        raise Conflict("You are already a member.")
    membership = Membership.objects.create(
        organization=organization, user=user, role=invitation.role
    )
    actor = Actor(kind="user", id=user.id, name=user.email, user_id=user.id)
    _record(
        actor,
        "member.invitation_accepted",
        "membership",
        membership,
        email=user.email,
        role=membership.role,
    )
    return membership


Invited = TypeVar("Invited", bound="Acceptable")


class Acceptable(Protocol):
    """An invitation to an organization, or of an operator."""

    email: str

    def state(self, now: datetime) -> InvitationState:
        """Return whether it can be accepted."""


def require_acceptable(invitation: Invited | None, user: User, now: datetime) -> Invited:
    """Return an invitation that a user can accept at `now`. Raises ObjectNotFound, which says why
    not to whoever has the link."""
    if invitation is None:
        raise ObjectNotFound("There is no such invitation.")
    if (state := invitation.state(now)) != InvitationState.OPEN:
        raise ObjectNotFound(f"The invitation is {state}.")
    if invitation.email != user.email:
        raise ObjectNotFound("The invitation is for another address.")
    return invitation


@transaction.atomic
def readdress_invitations(*, actor: Actor, before: str, after: str | None) -> None:
    """Send the open invitations of a person, in any organization, along to their new address: the
    old one may soon be somebody else's. They are withdrawn where there is none, or it is a
    member's, or has an invitation that can be accepted."""
    now = timezone.now()
    rows = Invitation.objects.select_for_update(of=("self",), no_key=True)
    rows = rows.filter(email=before, accepted_at__isnull=True, revoked_at__isnull=True)
    for invitation in rows.select_related("organization").order_by("id"):
        organization = invitation.organization
        if after is None:
            _withdraw(actor, invitation, now)
            continue
        expired = selectors.expired_invitation(organization, after, now)
        if expired is not None:
            _withdraw(actor, expired, now)
        if selectors.is_member(organization, after) or not _readdress(invitation, after):
            _withdraw(actor, invitation, now)
            continue
        _record(
            actor, "member.invitation_readdressed", "invitation", invitation,
            **_terms(invitation), address_changed=True,
        )  # fmt: skip


def _readdress(invitation: Invitation, email: str) -> bool:
    """Give an invitation another address; return whether that had no open one."""
    before, invitation.email = invitation.email, email
    try:
        with transaction.atomic():
            invitation.save(update_fields=["email"])
    except IntegrityError:
        invitation.email = before
        return False
    return True


def _withdraw(actor: Actor, invitation: Invitation, now: datetime) -> None:
    invitation.revoked_at = now
    invitation.save(update_fields=["revoked_at"])
    _record(actor, "member.invitation_revoked", "invitation", invitation, **_terms(invitation))


@transaction.atomic
def change_role(*, actor: Actor, membership: Membership, role: str) -> Membership:
    """Change a member's role. Their keys of the management API end if the new role may not make
    such keys. Raises Conflict for the last owner."""
    membership = _membership_to_change(actor, membership)
    _require_for_role(actor, membership.organization, role)
    if role != Role.OWNER:
        _keep_an_owner(membership)
    before, membership.role = membership.role, role
    membership.save(update_fields=["role"])
    ended = _send_membership_changed(membership, is_over=False, target=None)
    name, role_name = membership.organization.name, membership.get_role_display()
    _record(
        actor, "member.role_changed", "membership", membership, email=membership.user.email,
        before={"role": before}, after={"role": role}, keys=[row.id for row in ended],
    )  # fmt: skip
    _notify_member(
        actor, membership,
        gettext("Your role in %(organization)s changed") % {"organization": name},
        gettext("Your role in %(organization)s is now %(role)s.")
        % {"organization": name, "role": role_name.lower()}
        + _ended_keys_text(len(ended)),
    )  # fmt: skip
    publish(ended)
    return membership


@transaction.atomic
def remove_member(*, actor: Actor, membership: Membership, heir: Membership | None = None) -> int:
    """Remove a member; members may also remove themselves. Keys that they made go to `heir`, the
    transfer target, if its role may make such keys, else they end within a second. Return how many
    ended.

    Raises Conflict for the last owner, InvalidValue for a transfer target who may not make keys.
    """
    if actor.user_id is None or actor.user_id != membership.user_id:
        membership = _membership_to_change(actor, membership)
    else:
        organization = selectors.locked_organization(membership.organization_id)
        membership = selectors.member(organization, membership.id)
    _keep_an_owner(membership)
    target = _transfer_target(membership, heir) if heir is not None else None
    ended = _send_membership_changed(membership, is_over=True, target=target)
    name, email = membership.organization.name, membership.user.email
    _record(
        actor, "member.removed", "membership", membership, email=email, role=membership.role,
        keys=[row.id for row in ended], keys_to=target.user.email if target else None,
    )  # fmt: skip
    _notify_member(
        actor, membership,
        gettext("You are no longer a member of %(organization)s") % {"organization": name},
        gettext("Your membership in %(organization)s ended.") % {"organization": name}
        + _ended_keys_text(len(ended)),
    )  # fmt: skip
    membership.delete()
    publish(ended)
    return len(ended)


def _notify_member(actor: Actor, membership: Membership, subject: str, sentence: str) -> None:
    """Email a member that their membership changed, and who changed it."""
    advice = gettext("If this is a mistake, contact an owner of the organization.")
    notify(
        SecurityEmail(subject, sentence, advice, "/", gettext("Open the console")),
        to=membership.user.email,
        now=timezone.now(),
        who=actor.name,
        organization_id=membership.organization_id,
    )


def _ended_keys_text(count: int) -> str:
    """Return an email's sentence about ended keys, empty for none."""
    if not count:
        return ""
    text = ngettext(
        "%(count)d API key that you created stopped working.",
        "%(count)d API keys that you created stopped working.",
        count,
    )
    return f" {text % {'count': count}}"


def _transfer_target(membership: Membership, target: Membership) -> Membership:
    """Return the member who takes the keys, read anew. Raises InvalidValue."""
    current = selectors.member(membership.organization, target.id)
    if current == membership or not can(current.role, Permission.API_KEYS_WRITE):
        message = "transfer_keys_to must be another member whose role may create API keys."
        raise InvalidValue(message, param="transfer_keys_to")
    return current


def _send_membership_changed(
    membership: Membership, *, is_over: bool, target: Membership | None
) -> list[FeedRef]:
    """Let receivers end or transfer what depends on a membership. Return the changed rows, which
    the caller publishes last, since receivers take row locks."""
    responses = membership_changed.send(
        Membership, membership=membership, is_over=is_over, heir=target, now=timezone.now()
    )
    return [row for _, rows in responses for row in cast("list[FeedRef]", rows)]


def _membership_to_change(actor: Actor, membership: Membership) -> Membership:
    """Return the membership read anew, with the organization's row locked against a concurrent
    change."""
    organization = selectors.locked_organization(membership.organization_id)
    membership = selectors.member(organization, membership.id)
    _require_for_role(actor, organization, membership.role)
    return membership


def _require_for_role(actor: Actor, organization: Organization, role: str) -> None:
    if role not in Role.values:
        raise InvalidValue(f"role must be one of {', '.join(Role.values)}.", param="role")
    permission = Permission.OWNERS_WRITE if role == Role.OWNER else Permission.MEMBERS_WRITE
    require(actor, organization.id, permission)


def _keep_an_owner(membership: Membership) -> None:
    if membership.role == Role.OWNER and selectors.owner_count(membership.organization) == 1:
        raise Conflict("An organization needs an owner. Make another member an owner first.")


def require_email(email: str) -> None:
    """Raise InvalidValue for what is no email address."""
    try:
        validate_email(email)
    except ValidationError as error:
        raise InvalidValue("email must be an email address.", param="email") from error


def _terms(invitation: Invitation) -> dict[str, str]:
    return {"email": invitation.email, "role": invitation.role}


def _record(
    actor: Actor, action: str, kind: str, target: Invitation | Membership, **details: Any
) -> None:
    audit.record(
        actor=actor.in_log_of(target.organization_id),
        action=action,
        target_kind=kind,
        target_id=target.id,
        target_name=target.email if isinstance(target, Invitation) else target.user.email,
        organization_id=target.organization_id,
        details=details,
    )


def invitation_digest(secret: str) -> str:
    """Return the digest to store of an invitation's secret, which has 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()
