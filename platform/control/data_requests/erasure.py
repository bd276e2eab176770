"""Erasure of a person: what prevents it, its consequences, and the erasure itself.

An id without a name remains: audit events, keys and price books still refer to it, and billing
records belong to the organization.
"""

import secrets
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext, ngettext

from control.accounts.models import User, locked_user
from control.api_keys.selectors import active_keys_of
from control.audit import services as audit
from control.data_requests.inventory import (
    RetentionRule,
    inventory,
    invitations,
    outbox_mails,
    sessions,
    stored_emails,
)
from control.data_requests.models import DataSubjectRequest
from control.errors import Conflict
from control.organizations import selectors as tenants
from control.organizations.members import remove_member
from control.permissions import Actor


def obstacles(user: User) -> list[str]:
    """Return what must be done before the person can be erased, a sentence each."""
    reasons = []
    if user.operator_role:
        reasons.append(
            gettext(
                "This person is an operator of the platform: an owner must remove the operator"
                " first."
            )
        )
    sole = gettext(
        "%(organization)s has no other owner: make another member an owner, or delete it."
    )
    return reasons + [
        sole % {"organization": each.name} for each in tenants.solely_owned_organizations(user)
    ]


def consequences(user: User) -> list[str]:
    """Return what erasing the person now would do, a sentence each."""
    names = [membership.organization.name for membership in tenants.memberships(user)]
    count = active_keys_of(user, timezone.now()).count()
    memberships = gettext("There are no memberships to end.")
    if names:
        memberships = gettext("Membership ends in: %(organizations)s.") % {
            "organizations": ", ".join(names)
        }
    keys = gettext("No API keys are revoked.")
    if count:
        keys = ngettext(
            "%(count)d API key that this person created stops working within a second.",
            "%(count)d API keys that this person created stop working within a second.",
            count,
        ) % {"count": count}
    return [
        gettext(
            "Email, name, password and second factors are deleted, so nobody can sign in to the"
            " account again."
        ),
        memberships,
        keys,
        gettext("Every session ends. Invitations and emails to the address are deleted."),
        gettext(
            "Audit events, API keys and price books keep an ID, which is shown as “erased person”."
        ),
        gettext("Usage and payments belong to the organizations and are kept."),
    ]


def erase(user: User, *, actor: Actor, now: datetime) -> list[str]:
    """Erase a person and return what was done. Raises Conflict if something prevents it.

    Each membership ends in its own transaction, as publishing requires, and the person in the
    last, so an interrupted erasure can be repeated.
    """
    _check(user)
    done = consequences(user)
    remover = actor if actor.is_operator else Actor.for_user(user)
    for membership in tenants.memberships(user):
        remove_member(actor=remover, membership=membership)
    _end(user, actor, now)
    return done


@transaction.atomic
def _end(user: User, actor: Actor, now: datetime) -> None:
    user = locked_user(user.id)
    _check(user)
    for rows in (*invitations(user), outbox_mails(user), stored_emails(user)):
        rows.delete()
    for session in sessions(user, now):
        session.delete()
    for each in inventory():
        if each.end == RetentionRule.DELETED:
            each.model._default_manager.filter(Q(**{each.field: user.pk})).delete()
    DataSubjectRequest.objects.filter(person=user).update(export=None)
    audit.record(
        actor=actor,
        action="data_request.erased",
        target_kind="user",
        target_id=user.id,
        target_name=user.email,
    )
    _anonymize(user, now)


def _check(user: User) -> None:
    if user.erased_at is not None:
        raise Conflict("This person is already erased.")
    reasons = obstacles(user)
    if reasons:
        raise Conflict(" ".join(reasons))


def _anonymize(user: User, now: datetime) -> None:
    user.email = f"{secrets.token_hex(16)}@erased.invalid"
    user.name = ""
    user.is_active = False
    user.last_login = None
    user.erased_at = now
    user.set_unusable_password()
    user.save()
