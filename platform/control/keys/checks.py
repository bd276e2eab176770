"""What a key may be limited to, checked where it enters a service."""

import ipaddress
from collections.abc import Sequence
from datetime import datetime

from control.errors import Invalid
from control.keys.models import Mode, Scope

LIST_MAX = 100
MODEL_NAME_MAX = 200


def mode(value: str) -> str:
    """Return `live` or `test`. Raises Invalid."""
    if value not in Mode.values:
        raise Invalid(f"mode must be one of {', '.join(Mode.values)}.", param="mode")
    return value


def scopes(values: Sequence[str]) -> list[str]:
    """Return the scopes in a fixed order, each once. Raises Invalid."""
    if not values or not set(values) <= set(Scope.values):
        raise Invalid(f"scopes must be some of {', '.join(Scope.values)}.", param="scopes")
    return [scope for scope in Scope.values if scope in values]


def models(values: Sequence[str] | None) -> list[str] | None:
    """Return public ids of models, None for any. Raises Invalid."""
    if values is None:
        return None
    if not 0 < len(values) <= LIST_MAX or not all(0 < len(v) <= MODEL_NAME_MAX for v in values):
        raise Invalid(f"models must name 1 to {LIST_MAX} models.", param="models")
    return sorted(set(values))


def networks(values: Sequence[str] | None) -> list[str] | None:
    """Return networks in CIDR form, None for any. Raises Invalid."""
    if values is None:
        return None
    if not 0 < len(values) <= LIST_MAX:
        raise Invalid(f"networks must name 1 to {LIST_MAX} networks.", param="networks")
    try:
        return sorted({str(ipaddress.ip_network(value)) for value in values})
    except ValueError as error:
        raise Invalid(f"networks must be in CIDR form: {error}.", param="networks") from error


def expires_at(value: datetime | None, now: datetime) -> datetime | None:
    """Return when the key shall end: later than `now`, None for never. Raises Invalid."""
    if value is not None and value <= now:
        raise Invalid("expires_at must be in the future.", param="expires_at")
    return value
