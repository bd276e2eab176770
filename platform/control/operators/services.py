"""Invite, change and remove operators, and create and revoke their tokens. The platform always
keeps at least one owner.

The secret of a token is `pen_op_`, 30 base62 characters and a checksum of 6. Only its digest is
stored, with the peppers of API keys.
"""

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext

from control.accounts.models import User, locked_user, user_by_email
from control.accounts.notifications import SecurityEmail, notify
from control.audit import services as audit
from control.db.models import CredentialState, InvitationState
from control.db.row_changes import snapshot
from control.errors import Conflict, InvalidValue, NotPermitted
from control.mail.services import absolute, send_mail
from control.operators.models import TOKEN_PERMISSIONS, OperatorInvitation, OperatorToken
from control.operators.selectors import (
    invitation_by_digest,
    locked_invitation,
    open_invitations,
    operators,
)
from control.organizations.members import invitation_digest, require_acceptable, require_email
from control.organizations.validators import name as checked_name
from control.permissions import Actor, OperatorRole, Permission, require_operator
from serving.contract.api_key import (
    BASE62,
    CHECKSUM_CHARACTERS,
    RANDOM_CHARACTERS,
    checksum,
    digest,
    pepper_id,
)

INVITATION_DAYS = 2
PREFIX = "pen_op_"
LENGTH = len(PREFIX) + RANDOM_CHARACTERS + CHECKSUM_CHARACTERS
SHOWN_CHARACTERS = len(PREFIX) + 4
"""The length of a secret's beginning that is kept, to recognize it by."""
TOKEN_USE_INTERVAL = timedelta(minutes=5)
"""The shortest time between two updates of a token's `last_used_at`."""


@transaction.atomic
def invite_operator(*, actor: Actor, email: str, role: str) -> tuple[OperatorInvitation, str]:
    """Email an invitation; return it and the secret that accepts it, which is not stored.

    Open invitations to the same address are revoked. Raises Conflict for an operator.
    """
    require_operator(actor, Permission.OPERATORS_WRITE)
    _check_role(role)
    email = email.strip().lower()
    require_email(email)
    user = user_by_email(email)
    if user is not None and user.operator_role:
        raise Conflict(f"{email} is already an operator.", param="email")
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
    _record(actor, "operator.invited", "operator_invitation", invitation, email=email, role=role)
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
    now, invitation = timezone.now(), locked_invitation(invitation.id)
    if (state := invitation.state(now)) in (InvitationState.USED, InvitationState.WITHDRAWN):
        raise Conflict(f"The invitation is already {state}.")
    invitation.revoked_at = now
    invitation.save(update_fields=["revoked_at"])
    kind, role = "operator_invitation", invitation.role
    _record(
        actor, "operator.invitation_revoked", kind, invitation, email=invitation.email, role=role
    )


@transaction.atomic
def accept_operator_invitation(*, user: User, secret: str) -> User:
    """Accept the invitation that a secret belongs to, for this user's address.

    Raises ObjectNotFound if the secret is unknown, used, withdrawn, expired or another person's,
    Conflict for an operator.
    """
    now = timezone.now()
    found = invitation_by_digest(invitation_digest(secret))
    invitation = require_acceptable(found and locked_invitation(found.id), user, now)
    invitation.accepted_at = now
    invitation.save(update_fields=["accepted_at"])
    user = locked_user(user.id)
    if user.operator_role:
        raise Conflict("You are already an operator.")
    _set_role(user, invitation.role)
    role = user.operator_role
    _record(
        Actor.for_user(user),
        "operator.invitation_accepted",
        "user",
        user,
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
        actor, "operator.role_changed", "user", operator,
        email=operator.email, before={"role": before}, after={"role": role},
    )  # fmt: skip
    _notify_operator(
        actor, operator,
        gettext("Your operator role changed"),
        gettext("Your operator role is now %(role)s. It was %(before)s.")
        % {"role": role, "before": before},
    )  # fmt: skip
    return operator


@transaction.atomic
def remove_operator(*, actor: Actor, user: User) -> User:
    """Remove an operator, who loses the admin from their next request on, and revoke their tokens.
    The user and their memberships remain. Raises Conflict for the last owner and for a
    non-operator."""
    require_operator(actor, Permission.OPERATORS_WRITE)
    operator = _locked_operator(user)
    _keep_an_owner(operator)
    before = operator.operator_role
    for token in operator.operator_tokens.all():
        if token.state(timezone.now()) != CredentialState.REVOKED:
            revoke_operator_token(actor=actor, token=token)
    _set_role(operator, "")
    removed = {"email": operator.email, "before": {"role": before}}
    _record(actor, "operator.removed", "user", operator, **removed)
    _notify_operator(
        actor, operator,
        gettext("You are no longer an operator"),
        gettext("Your operator role (%(role)s) was removed. Your organizations are not affected.")
        % {"role": before},
    )  # fmt: skip
    return operator


@transaction.atomic
def create_operator_token(
    *,
    actor: Actor,
    name: str,
    permissions: Collection[str],
    expires_at: datetime | None = None,
) -> tuple[OperatorToken, str]:
    """Create a token that acts as the operator; return it and its secret, which is not stored.

    Raises NotPermitted for a permission that the operator's role lacks and for an actor who is no
    person or uses a token, InvalidValue for no or unknown permissions and a time in the past.
    """
    require_operator(actor, Permission.PLATFORM_READ)
    if actor.user_id is None or actor.token_id is not None:
        raise NotPermitted("Only a signed-in operator may create an operator token.")
    _check_token(actor, permissions, expires_at)
    secret = make_secret()
    token = OperatorToken.objects.create(
        name=checked_name(name),
        permissions=[each for each in TOKEN_PERMISSIONS if each in permissions],
        digest=digests_of(secret)[0],
        pepper_id=pepper_id(settings.CONFIG.key_peppers[0]),
        prefix=secret[:SHOWN_CHARACTERS],
        last_four=secret[-4:],
        created_by_id=actor.user_id,
        expires_at=expires_at,
    )
    allowed, values = token.permissions, snapshot(token, ("name", "permissions", "expires_at"))
    _record(actor, "operator_token.created", "operator_token", token, **values)
    _notify_operator(
        actor, token.created_by,
        gettext("An operator token was created"),
        gettext("Programs with the token %(name)s act as you. Its permissions: %(permissions)s.")
        % {"name": token.name, "permissions": ", ".join(allowed)},
    )  # fmt: skip
    return token, secret


@transaction.atomic
def revoke_operator_token(*, actor: Actor, token: OperatorToken) -> None:
    """Revoke a token, from its next request on. Raises NotPermitted for the token of another
    operator unless the actor is an owner, Conflict for a revoked token."""
    is_own = actor.user_id == token.created_by_id
    require_operator(actor, Permission.PLATFORM_READ if is_own else Permission.OPERATORS_WRITE)
    now = timezone.now()
    if not OperatorToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
        raise Conflict("The token is already revoked.")
    _record(actor, "operator_token.revoked", "operator_token", token, name=token.name)


def record_token_use(token: OperatorToken, now: datetime) -> None:
    """Record when a token was last used, at most every `TOKEN_USE_INTERVAL`."""
    if token.last_used_at is None or token.last_used_at < now - TOKEN_USE_INTERVAL:
        OperatorToken.objects.filter(pk=token.pk).update(last_used_at=now)


def _check_token(actor: Actor, permissions: Collection[str], expires_at: datetime | None) -> None:
    for each in permissions:
        if each not in TOKEN_PERMISSIONS:
            wanted = f"wanted some of {', '.join(TOKEN_PERMISSIONS)}"
            raise InvalidValue(f"permissions has {each!r}; {wanted}.", param="permissions")
        require_operator(actor, Permission(each))
    if not permissions:
        raise InvalidValue("permissions is empty; wanted at least one.", param="permissions")
    if expires_at is not None and expires_at <= timezone.now():
        moment = expires_at.isoformat()
        raise InvalidValue(f"expires_at is {moment}; wanted a future time.", param="expires_at")


def _notify_operator(actor: Actor, user: User, subject: str, sentence: str) -> None:
    """Email an operator that their role or tokens changed, and who changed them."""
    advice = gettext("If this is a mistake, contact an owner of the platform.")
    content = SecurityEmail(subject, sentence, advice, "/", gettext("Open the console"))
    notify(content, to=user.email, now=timezone.now(), who=actor.name)


def _locked_operator(user: User) -> User:
    """Return the operator read anew, with all operators' rows locked."""
    list(operators().select_for_update(no_key=True))
    operator = operators().filter(id=user.id).first()
    if operator is None:
        raise Conflict("This person is not an operator.")
    return operator


def _set_role(user: User, role: str) -> None:
    user.operator_role = role
    user.save(update_fields=["operator_role"])


def _keep_an_owner(user: User) -> None:
    owners = operators().filter(operator_role=OperatorRole.OWNER, is_active=True)
    if not owners.exclude(id=user.id).exists() and user.operator_role == OperatorRole.OWNER:
        raise Conflict("The platform needs an owner. Make someone else an owner first.")


def _check_role(role: str) -> None:
    if role not in set(OperatorRole):
        raise InvalidValue(f"role must be one of {', '.join(OperatorRole)}.", param="role")


def _record(
    actor: Actor,
    action: str,
    kind: str,
    target: OperatorInvitation | OperatorToken | User,
    **details: Any,
) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind=kind,
        target_id=target.id,
        target_name=str(target) if isinstance(target, OperatorToken) else target.email,
        details=details,
    )


def make_secret() -> str:
    """Return a new secret of a token."""
    body = PREFIX + "".join(secrets.choice(BASE62) for _ in range(RANDOM_CHARACTERS))
    return body + checksum(body)


def is_well_formed(secret: str) -> bool:
    """Return whether a text has the form of a secret and the right checksum."""
    body, check = secret[:-CHECKSUM_CHARACTERS], secret[-CHECKSUM_CHARACTERS:]
    has_form = len(secret) == LENGTH and secret.startswith(PREFIX)
    return has_form and secret.isascii() and checksum(body) == check


def digests_of(secret: str) -> list[str]:
    """Return the digests of a secret with each pepper, the newest first."""
    return [digest(secret, pepper.encode()) for pepper in settings.CONFIG.key_peppers]
