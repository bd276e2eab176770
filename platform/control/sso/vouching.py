"""What a provider's answer comes to, whatever it is written in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a provider says of a person; `values` are those of the claim that roles are mapped by,
    None where it has no say in roles."""

    subject: str
    email: str
    values: tuple[str, ...] | None = None
    name: str = ""
