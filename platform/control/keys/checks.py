"""What a key may be limited to, checked where it enters a service."""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

from control.errors import InvalidValue
from control.keys.models import Scope

LIST_MAX = 100
MAPPED_BITS = 96
"""How long the prefix is of what maps IPv4 into IPv6, `::ffff:0:0/96`."""
MODEL_NAME_MAX = 200
OVERLAP = timedelta(hours=24)
"""How long a replaced secret goes on working, unless told otherwise."""
OVERLAP_MAX = timedelta(days=30)


def scopes(values: Sequence[str]) -> list[str]:
    """Return the scopes in a fixed order, each once. Raises InvalidValue."""
    if not values or not set(values) <= set(Scope.values):
        raise InvalidValue(f"scopes must be some of {', '.join(Scope.values)}.", param="scopes")
    return [scope for scope in Scope.values if scope in values]


def models(values: Sequence[str] | None) -> list[str] | None:
    """Return public ids of models, None for any. Raises InvalidValue."""
    if values is None:
        return None
    if not 0 < len(values) <= LIST_MAX or not all(0 < len(v) <= MODEL_NAME_MAX for v in values):
        raise InvalidValue(f"models must name 1 to {LIST_MAX} models.", param="models")
    return sorted(set(values))


def networks(values: Sequence[str] | None) -> list[str] | None:
    """Return networks in CIDR form, None for any. Raises InvalidValue."""
    if values is None:
        return None
    if not 0 < len(values) <= LIST_MAX:
        raise InvalidValue(f"networks must name 1 to {LIST_MAX} networks.", param="networks")
    try:
        return sorted({str(_network(value)) for value in values})
    except ValueError as error:
        raise InvalidValue(f"networks must be in CIDR form: {error}.", param="networks") from error


def _network(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a network; one of IPv4 mapped into IPv6 as IPv4's, as which its clients are known."""
    network = ipaddress.ip_network(value)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < MAPPED_BITS:
        return network
    return ipaddress.ip_network(f"{mapped}/{network.prefixlen - MAPPED_BITS}")


def expires_at(value: datetime | None, now: datetime) -> datetime | None:
    """Return when the key shall end: later than `now`, None for never. Raises InvalidValue."""
    if value is not None and value <= now:
        raise InvalidValue("expires_at must be in the future.", param="expires_at")
    return value


def old_secret_ends_at(value: datetime | None, now: datetime) -> datetime:
    """Return when a replaced secret ends, `now` or a while later. Raises InvalidValue."""
    if value is None:
        return now + OVERLAP
    if value > now + OVERLAP_MAX:
        words = f"old_secret_ends_at must be within {OVERLAP_MAX.days} days."
        raise InvalidValue(words, param="old_secret_ends_at")
    return max(value, now)
