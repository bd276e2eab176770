"""Who does something: a member, an operator, an API key, or the platform itself."""

from dataclasses import dataclass
from typing import Literal

ActorKind = Literal["user", "key", "system"]


@dataclass(frozen=True, slots=True)
class Actor:
    """What the audit names and permissions judge. `role` holds in `organization_id` only;
    an operator may do everything everywhere."""

    kind: ActorKind
    id: str
    name: str
    user_id: str | None = None
    organization_id: str | None = None
    role: str | None = None
    is_operator: bool = False


def system(name: str) -> Actor:
    """Return the platform acting by itself, such as a seed or a schedule."""
    return Actor(kind="system", id="", name=name, is_operator=True)
