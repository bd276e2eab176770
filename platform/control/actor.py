"""Who does something: a member, an operator, an API key, or the platform itself."""

from dataclasses import dataclass
from typing import Literal, Protocol

ActorKind = Literal["user", "key", "system"]


@dataclass(frozen=True, slots=True)
class Actor:
    """What the audit names and permissions judge. `role` holds in `organization_id` only,
    `operator_role` everywhere (`control.operators` says for what)."""

    kind: ActorKind
    id: str
    name: str
    user_id: str | None = None
    organization_id: str | None = None
    role: str | None = None
    operator_role: str | None = None
    maker_id: str | None = None
    """Of an API key: the person who answers for it."""

    @property
    def person_id(self) -> str | None:
        """The person behind what is done, by themselves or by a key of theirs."""
        return self.user_id or self.maker_id

    @property
    def is_operator(self) -> bool:
        """Whether they run the platform, in whatever role."""
        return self.operator_role is not None


def system(name: str) -> Actor:
    """Return the platform acting by itself, such as a seed or a schedule."""
    return Actor(kind="system", id="", name=name, operator_role="owner")


class Person(Protocol):
    """What is asked of a user here, below the tables."""

    id: str
    email: str
    operator_role: str


def person(user: Person) -> Actor:
    """Return a user as an actor: an operator where they are one, else one without any role."""
    return Actor(
        kind="user",
        id=user.id,
        name=user.email,
        user_id=user.id,
        operator_role=user.operator_role or None,
    )
