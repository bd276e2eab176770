"""What an endpoint is made of, checked where it enters a service."""

from collections.abc import Sequence

from control.errors import InvalidValue
from control.webhooks.kinds import KINDS
from control.webhooks.models import DESCRIPTION_MAX

ENDPOINTS_MAX = 20
"""Endpoints of one organization."""
BY_HAND_MAX = 20
"""Tests and repeats to one endpoint within a minute: nobody's server is flooded from here."""


def kinds(values: Sequence[str]) -> list[str]:
    """Return kinds in a fixed order, each once. Raises InvalidValue."""
    if not values or not set(values) <= KINDS.keys():
        raise InvalidValue(f"kinds must be some of {', '.join(KINDS)}.", param="kinds")
    return [kind for kind in KINDS if kind in values]


def description(value: str) -> str:
    """Return a description without blanks around it. Raises InvalidValue."""
    stripped = value.strip()
    if len(stripped) > DESCRIPTION_MAX or not stripped.isprintable():
        raise InvalidValue(
            f"description must have at most {DESCRIPTION_MAX} printable characters.",
            param="description",
        )
    return stripped
