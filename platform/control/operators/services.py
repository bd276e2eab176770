"""Invite, change and remove operators. The platform always keeps at least one owner."""

import secrets
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone

from control.accounts.models import User
from control.accounts.notifications import SecurityEmail, notify
from control.accounts.selectors import locked_user, user_by_email
from control.audit import services as audit
from control.errors import Conflict, InvalidValue, ObjectNotFound
from control.mail.services import absolute, send_mail
from control.operators.models import OperatorInvitation
from control.operators.selectors import open_invitation, open_invitations, operators
from control.organizations.members import invitation_digest
from control.permissions import Actor, OperatorRole, Permission, require_operator

INVITATION_DAYS = 2


@transaction.atomic
def invite_operator(*, actor: Actor, email: str, role: str) -> tuple[OperatorInvitation, str]:
    """Email an invitation; return it and the secret that accepts it, which is not stored.

    Open invitations to the same address are revoked. Raises Conflict for an operator.
    """
    require_operator(actor, Permission.OPERATORS_WRITE)
    _check_role(role)
    email = email.strip().lower()
    _check_email(email)
    user = user_by_email(email)
    if user is not None and user.operator_role:
        raise Conflict(f"{email} is an operator already.", param="email")
    now, secret = timezone.now(), secrets.token_urlsafe(32)
    for earlier in open_invitations().filter(email=email).select_for_update():
        revoke_operator_invitation(actor=actor, invitation=earlier)
    invitation = OperatorInvitation.objects.create(
        email=email,
        role=role,
        digest=invitation_digest(secret),
        invited_by_id=actor.user_id,
        expires_at=now + timedelta(days=INVITATION_DAYS),
    )
    _record(actor, "operator.invited", "operator_invitation", invitation.id, email=email, role=role)
    send_mail(
        template="operator_invitation",
        to=[email],
        context={
            "inviter": actor.name,
            "role": role,
            "accept_url": absolute(f"/operators/invitations/{secret}"),
            "days": INVITATION_DAYS,
        },
        key=invitation.id,
        organization_id=None,
        now=now,
    )
    return invitation, secret


@transaction.atomic
def revoke_operator_invitation(*, actor: Actor, invitation: OperatorInvitation) -> None:
    """Revoke an open invitation. Raises Conflict if it was accepted or revoked."""
    require_operator(actor, Permission.OPERATORS_WRITE)
    if invitation.accepted_at is not None or invitation.revoked_at is not None:
        raise Conflict("The invitation is not open any more.")
    invitation.revoked_at = timezone.now()
    invitation.save(update_fields=["revoked_at"])
    email, kind = invitation.email, "operator_invitation"
    _record(actor, "operator.invitation_revoked", kind, invitation.id, email=email)


@transaction.atomic
def accept_operator_invitation(*, user: User, secret: str) -> User:
    """Accept the invitation that a secret belongs to, for this user's address.

    Raises ObjectNotFound if the secret is unknown, used, expired or another person's, Conflict for
    an operator.
    """
    now = timezone.now()
    invitation = open_invitation(invitation_digest(secret), now)
    if invitation is None or invitation.email != user.email:
        raise ObjectNotFound("The invitation is unknown, used or expired.")
    invitation.accepted_at = now
    invitation.save(update_fields=["accepted_at"])
    user = locked_user(user.id)
    if user.operator_role:
        raise Conflict("You are an operator already.")
    _set_role(user, invitation.role)
    role = user.operator_role
    _record(
        Actor.for_user(user),
        "operator.invitation_accepted",
        "user",
        user.id,
        email=user.email,
        role=role,
    )
    return user


@transaction.atomic
def change_operator_role(*, actor: Actor, user: User, role: str) -> User:
    """Change an operator's role. Raises Conflict for the last owner and for a non-operator."""
    require_operator(actor, Permission.OPERATORS_WRITE)
    _check_role(role)
    operator = _locked_operator(user)
    before = operator.operator_role
    if role != OperatorRole.OWNER:
        _keep_an_owner(operator)
    _set_role(operator, role)
    _record(
        actor, "operator.role_changed", "user", operator.id,
        email=operator.email, before=before, after=role,
    )  # fmt: skip
    _notify_operator(
        actor, operator,
        "Your role as an operator changed",
        f"You run the platform with the role {role} now; it was {before}.",
    )  # fmt: skip
    return operator


@transaction.atomic
def remove_operator(*, actor: Actor, user: User) -> User:
    """Remove an operator, who loses the admin from their next request on. The user and their
    memberships remain. Raises Conflict for the last owner and for a non-operator."""
    require_operator(actor, Permission.OPERATORS_WRITE)
    operator = _locked_operator(user)
    _keep_an_owner(operator)
    before = operator.operator_role
    _set_role(operator, "")
    _record(actor, "operator.removed", "user", operator.id, email=operator.email, before=before)
    _notify_operator(
        actor, operator,
        "You are no operator any more",
        f"Your role as an operator ({before}) ended. Your organizations stay as they are.",
    )  # fmt: skip
    return operator


def _notify_operator(actor: Actor, user: User, subject: str, sentence: str) -> None:
    """Email an operator that their role changed, and who changed it."""
    advice = "If that is a mistake, ask an owner of the platform."
    content = SecurityEmail(subject, sentence, advice, "/", "Open the console")
    notify(content, to=user.email, now=timezone.now(), who=actor.name)


def _locked_operator(user: User) -> User:
    """Return the operator read anew, with all operators' rows locked."""
    list(operators().select_for_update(no_key=True))
    operator = operators().filter(id=user.id).first()
    if operator is None:
        raise Conflict("This is no operator.")
    return operator


def _set_role(user: User, role: str) -> None:
    user.operator_role = role
    user.save(update_fields=["operator_role"])


def _keep_an_owner(user: User) -> None:
    owners = operators().filter(operator_role=OperatorRole.OWNER, is_active=True)
    if not owners.exclude(id=user.id).exists() and user.operator_role == OperatorRole.OWNER:
        raise Conflict("The platform needs an owner: make somebody else one first.")


def _check_role(role: str) -> None:
    if role not in set(OperatorRole):
        raise InvalidValue(f"role must be one of {', '.join(OperatorRole)}.", param="role")


def _check_email(email: str) -> None:
    try:
        validate_email(email)
    except ValidationError as error:
        raise InvalidValue("email must be an e-mail address.", param="email") from error


def _record(actor: Actor, action: str, kind: str, target_id: str, **details: Any) -> None:
    audit.record(actor=actor, action=action, target_kind=kind, target_id=target_id, details=details)
