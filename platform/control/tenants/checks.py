"""Values that people type, checked where they enter a service."""

from control.errors import Invalid
from control.tenants.models import NAME_MAX

NANOS_MAX = 2**63 - 1


def name(value: str, *, param: str = "name") -> str:
    """Return a name without blanks around it. Raises Invalid."""
    stripped = value.strip()
    if not stripped or len(stripped) > NAME_MAX or not stripped.isprintable():
        raise Invalid(f"{param} must have 1 to {NAME_MAX} printable characters.", param=param)
    return stripped


def spend_limit_nanos(value: int | None) -> int | None:
    """Return a monthly limit in nano-dollars, None for no limit. Raises Invalid."""
    if value is not None and not 0 <= value <= NANOS_MAX:
        raise Invalid("spend_limit_nanos must not be negative.", param="spend_limit_nanos")
    return value
