"""Invite, accept, change a role, remove: members of organizations."""

import hashlib
import secrets
from datetime import timedelta
from typing import Any, cast

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone

from control.accounts.models import User
from control.accounts.notifications import SecurityEmail, notify
from control.audit import services as audit
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
    """Offer a seat by mail; return the invitation and the secret that accepts it, told once.

    One whose time is over is withdrawn for the new one. Raises Conflict when the person is a
    member, or was invited and may still accept.
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
    _check_email(email)
    if selectors.is_member(organization, email):
        raise Conflict(f"{email} is a member already.", param="email")
    now = timezone.now()
    expired = selectors.expired_invitation(organization, email, now)
    if expired is not None:
        revoke_invitation(actor=actor, invitation=expired)
    if selectors.open_invitations(organization).filter(email=email).exists():
        raise Conflict(f"{email} was invited already.", param="email")
    secret = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        organization=organization,
        email=email,
        role=role,
        digest=invitation_digest(secret),
        invited_by_id=actor.user_id,
        expires_at=now + timedelta(days=INVITATION_DAYS),
    )
    _record(actor, "member.invite", "invitation", invitation, email=email, role=role)
    return invitation, secret


@transaction.atomic
def revoke_invitation(*, actor: Actor, invitation: Invitation) -> None:
    """Withdraw an invitation that was not accepted yet."""
    require(actor, invitation.organization_id, Permission.MEMBERS_WRITE)
    invitation.revoked_at = timezone.now()
    invitation.save(update_fields=["revoked_at"])
    _record(actor, "member.revoke_invitation", "invitation", invitation, email=invitation.email)


@transaction.atomic
def resend_invitation(*, actor: Actor, invitation: Invitation) -> tuple[Invitation, str]:
    """Mail an invitation anew, good for as long as at first; the old secret opens nothing more."""
    revoke_invitation(actor=actor, invitation=invitation)
    return invite_member(
        actor=actor,
        organization=invitation.organization,
        email=invitation.email,
        role=invitation.role,
    )


@transaction.atomic
def accept_invitation(*, user: User, secret: str) -> Membership:
    """Take the seat that a secret offers to this user's address.

    Raises ObjectNotFound for an unknown, used or expired secret, or another person's.
    """
    now = timezone.now()
    invitation = selectors.invitation_by_digest(invitation_digest(secret), now)
    if invitation.email != user.email:
        raise ObjectNotFound("The invitation is unknown, used or expired.")
    invitation.accepted_at = now
    invitation.save(update_fields=["accepted_at"])
    organization = invitation.organization
    if selectors.is_member(organization, user.email):
        raise Conflict("You are a member already.")
    seat = Membership.objects.create(organization=organization, user=user, role=invitation.role)
    actor = Actor(kind="user", id=user.id, name=user.email, user_id=user.id)
    _record(actor, "member.accept", "membership", seat, email=user.email, role=seat.role)
    return seat


@transaction.atomic
def change_role(*, actor: Actor, membership: Membership, role: str) -> Membership:
    """Give a member another role; keys of the management API that they made end with the right to
    make them. Raises Conflict for the last owner."""
    seat = _membership_to_change(actor, membership)
    _require_for_role(actor, seat.organization, role)
    if role != Role.OWNER:
        _keep_an_owner(seat)
    before, seat.role = seat.role, role
    seat.save(update_fields=["role"])
    ended = _tell(seat, is_over=False, heir=None)
    _record(
        actor, "member.change_role", "membership", seat, email=seat.user.email,
        before=before, after=role, keys=[row.id for row in ended],
    )  # fmt: skip
    _tell_person(
        actor, seat,
        f"Your role in {seat.organization.name} changed",
        f"You are {_a(seat.get_role_display())} of {seat.organization.name} now."
        + _of_keys(len(ended)),
    )  # fmt: skip
    publish(ended)
    return seat


@transaction.atomic
def remove_member(*, actor: Actor, membership: Membership, heir: Membership | None = None) -> int:
    """Take a member's seat; anybody may leave by themselves. Keys that they made go to the heir, if
    they may make such keys, else they end within a second; returns how many ended.

    Raises Conflict for the last owner, InvalidValue for an heir who may make no keys.
    """
    if actor.user_id is None or actor.user_id != membership.user_id:
        seat = _membership_to_change(actor, membership)
    else:
        organization = selectors.locked_organization(membership.organization_id)
        seat = selectors.member(organization, membership.id)
    _keep_an_owner(seat)
    if heir is not None:
        heir = _transfer_target(seat, heir)
    ended = _tell(seat, is_over=True, heir=heir)
    _record(
        actor, "member.remove", "membership", seat, email=seat.user.email, role=seat.role,
        keys=[row.id for row in ended], keys_to=heir.user.email if heir else None,
    )  # fmt: skip
    _tell_person(
        actor, seat,
        f"You left {seat.organization.name}",
        f"You are no member of {seat.organization.name} any more." + _of_keys(len(ended)),
    )  # fmt: skip
    seat.delete()
    publish(ended)
    return len(ended)


def _tell_person(actor: Actor, seat: Membership, subject: str, sentence: str) -> None:
    """Mail the member what became of their seat, by whoever did it."""
    advice = "If that is a mistake, ask an owner of the organization."
    news = SecurityEmail(subject, sentence, advice, "/", "Open the console")
    to, by = seat.user.email, actor.name
    organization_id = seat.organization_id
    notify(news, to=to, now=timezone.now(), who=by, organization_id=organization_id)


def _a(role: str) -> str:
    """Return a role with its article: an owner, a viewer."""
    return f"a{'n' if role[0] in 'AEIOU' else ''} {role.lower()}"


def _of_keys(count: int) -> str:
    """Return what a mail says of keys that ended."""
    if not count:
        return ""
    return f" {count} API key{'' if count == 1 else 's'} that you made stopped working."


def _transfer_target(seat: Membership, heir: Membership) -> Membership:
    """Return who takes a member's keys, as they are now. Raises InvalidValue."""
    found = selectors.member(seat.organization, heir.id)
    if found == seat or not can(found.role, Permission.API_KEYS_WRITE):
        raise InvalidValue("keys_to must be another member who may make keys.", param="keys_to")
    return found


def _tell(seat: Membership, *, is_over: bool, heir: Membership | None) -> list[FeedRef]:
    """Let others end what depends on a seat; return what of it is to be published, which must come
    last: a receiver takes row locks."""
    now = timezone.now()
    answers = membership_changed.send(
        Membership, membership=seat, is_over=is_over, heir=heir, now=now
    )
    return [row for _, rows in answers for row in cast("list[FeedRef]", rows)]


def _membership_to_change(actor: Actor, membership: Membership) -> Membership:
    """Return the seat as it is now, the organization's row locked against a second change."""
    organization = selectors.locked_organization(membership.organization_id)
    seat = selectors.member(organization, membership.id)
    _require_for_role(actor, organization, seat.role)
    return seat


def _require_for_role(actor: Actor, organization: Organization, role: str) -> None:
    if role not in Role.values:
        raise InvalidValue(f"role must be one of {', '.join(Role.values)}.", param="role")
    owners = role == Role.OWNER
    require(actor, organization.id, Permission.OWNERS_WRITE if owners else Permission.MEMBERS_WRITE)


def _keep_an_owner(seat: Membership) -> None:
    if seat.role == Role.OWNER and selectors.owner_count(seat.organization) == 1:
        raise Conflict("An organization needs an owner: make somebody else one first.")


def _check_email(email: str) -> None:
    try:
        validate_email(email)
    except ValidationError as error:
        raise InvalidValue("email must be an e-mail address.", param="email") from error


def _record(
    actor: Actor, action: str, kind: str, target: Invitation | Membership, **details: Any
) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind=kind,
        target_id=target.id,
        organization_id=target.organization_id,
        details=details,
    )


def invitation_digest(secret: str) -> str:
    """Return what is stored of an invitation's secret, which has 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()
