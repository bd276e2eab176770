"""What operators of the platform may do: the one place that says so. Every service of theirs asks
`require_operator` first, with the duty it is a part of; the admin asks the same by app (`may`).
"""

from enum import StrEnum

from control.actor import Actor
from control.errors import NotPermitted


class Duty(StrEnum):
    """A part of running the platform."""

    LOOK = "look"
    HELP_CUSTOMERS = "help customers"
    RUN_MODELS = "run models"
    KEEP_BOOKS = "keep the books"
    MANAGE_OPERATORS = "manage operators"


class OperatorRole(StrEnum):
    """What an operator was made."""

    VIEWER = "viewer"
    SUPPORT = "support"
    CATALOG = "catalog"
    FINANCE = "finance"
    OWNER = "owner"


DUTIES: dict[str, frozenset[Duty]] = {
    OperatorRole.VIEWER: frozenset({Duty.LOOK}),
    OperatorRole.SUPPORT: frozenset({Duty.LOOK, Duty.HELP_CUSTOMERS}),
    OperatorRole.CATALOG: frozenset({Duty.LOOK, Duty.RUN_MODELS}),
    OperatorRole.FINANCE: frozenset({Duty.LOOK, Duty.KEEP_BOOKS}),
    OperatorRole.OWNER: frozenset(Duty),
}


def can(role: str | None, duty: Duty) -> bool:
    """Tell whether an operator's role (None, or empty: no operator) holds a duty."""
    return duty in DUTIES.get(role or "", frozenset())


def require_operator(actor: Actor, duty: Duty) -> None:
    """Let only operators with a duty pass. Raises NotPermitted."""
    if not actor.is_operator:
        raise NotPermitted("Only operators of the platform may do this.")
    if not can(actor.operator_role, duty):
        raise NotPermitted(f"Operators with the role {actor.operator_role} may not {duty}.")
