"""What each role may do: the one place that says so. Every service asks `require` first."""

from enum import StrEnum

from control.actor import Actor
from control.errors import NotPermitted, ObjectNotFound
from control.operators import Duty, require_operator
from control.tenants.models import Membership, Organization, Role


class Action(StrEnum):
    """Something in an organization that not everybody may do."""

    READ = "read"
    SEE_MONEY = "see_money"
    PAY = "pay"
    SET_LIMITS = "set_limits"
    EDIT_BILLING = "edit_billing"
    MAKE_KEYS = "make_keys"
    MAKE_MANAGE_KEYS = "make_manage_keys"
    MANAGE_PROJECTS = "manage_projects"
    MANAGE_MEMBERS = "manage_members"
    MANAGE_OWNERS = "manage_owners"
    MANAGE_WEBHOOKS = "manage_webhooks"
    KEEP_ANSWERS = "keep_answers"
    RENAME_ORGANIZATION = "rename_organization"
    DELETE_ORGANIZATION = "delete_organization"
    SEE_AUDIT = "see_audit"


_OWNERS = {Action.MANAGE_OWNERS, Action.RENAME_ORGANIZATION, Action.DELETE_ORGANIZATION}
_ADMIN = frozenset(Action) - _OWNERS
ALLOWED: dict[str, frozenset[Action]] = {
    Role.OWNER: frozenset(Action),
    Role.ADMIN: _ADMIN,
    Role.BILLING: frozenset(
        {Action.READ, Action.SEE_MONEY, Action.PAY, Action.SET_LIMITS, Action.EDIT_BILLING}
    ),
    Role.DEVELOPER: frozenset({Action.READ, Action.MAKE_KEYS}),
    Role.VIEWER: frozenset({Action.READ}),
}

_DUTIES = {
    Action.READ: Duty.LOOK,
    Action.SEE_MONEY: Duty.LOOK,
    Action.PAY: Duty.KEEP_BOOKS,
    Action.SET_LIMITS: Duty.KEEP_BOOKS,
    Action.EDIT_BILLING: Duty.KEEP_BOOKS,
    Action.DELETE_ORGANIZATION: Duty.MANAGE_OPERATORS,
}
"""Which of an operator's duties an action in a customer's organization is; else it is help."""


def can(role: str, action: Action) -> bool:
    """Tell whether a role allows an action."""
    return action in ALLOWED[role]


def require(actor: Actor, organization: Organization, action: Action) -> None:
    """Let an actor pass who may do `action` in `organization`.

    Raises ObjectNotFound for who has no part in it, NotPermitted for a lesser role; operators need
    the duty that the action belongs to.
    """
    if actor.is_operator:
        require_operator(actor, _DUTIES.get(action, Duty.HELP_CUSTOMERS))
        return
    if actor.organization_id != organization.id or actor.role is None:
        raise ObjectNotFound("There is no such organization.")
    if not can(actor.role, action):
        words = action.value.replace("_", " ")
        raise NotPermitted(f"The role {actor.role} may not {words}.")


def member(membership: Membership) -> Actor:
    """Return a member as an actor in their organization."""
    return Actor(
        kind="user",
        id=membership.user_id,
        name=membership.user.email,
        user_id=membership.user_id,
        organization_id=membership.organization_id,
        role=membership.role,
    )
