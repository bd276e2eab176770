"""Validation of user input to the services."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from control.accounts.models import NAME_MAX
from control.errors import InvalidValue
from control.organizations.models import ORIGIN_MAX

NANOS_MAX = 2**63 - 1
CREDIT_LIMIT_MAX_NANOS = 10**18
"""$1 billion: added to what was paid, it stays far within 64 bits."""
ORIGINS_MAX = 20
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def name(value: str, *, param: str = "name") -> str:
    """Return a name without surrounding whitespace. Raises InvalidValue."""
    stripped = value.strip()
    if not stripped or len(stripped) > NAME_MAX or not stripped.isprintable():
        raise InvalidValue(f"{param} must have 1 to {NAME_MAX} printable characters.", param=param)
    return stripped


def spend_limit_nanos(value: int | None) -> int | None:
    """Return a monthly limit in nano-dollars; None means no limit. Raises InvalidValue."""
    if value is not None and not 0 <= value <= NANOS_MAX:
        raise InvalidValue(
            f"spend_limit_nanos is {value}; wanted 0 to {NANOS_MAX}.", param="spend_limit_nanos"
        )
    return value


def credit_limit_nanos(value: int) -> int:
    """Return a credit limit in nano-dollars. Raises InvalidValue."""
    if not 0 <= value <= CREDIT_LIMIT_MAX_NANOS:
        raise InvalidValue(
            f"credit_limit_nanos is {value}; wanted 0 to {CREDIT_LIMIT_MAX_NANOS}.",
            param="credit_limit_nanos",
        )
    return value


def origins(values: Iterable[str]) -> list[str]:
    """Return origins as browsers send them, sorted, without duplicates. Raises InvalidValue."""
    found = sorted({_origin(value) for value in values})
    if len(found) > ORIGINS_MAX:
        raise InvalidValue(
            f"allowed_origins has {len(found)} origins; wanted at most {ORIGINS_MAX}.",
            param="allowed_origins",
        )
    return found


def _origin(value: str) -> str:
    """Return scheme, host and port, in lower case and without the default port.

    Worked example: `HTTPS://App.Example.com:443/` becomes `https://app.example.com`.
    """
    text = value.strip().lower().removesuffix("/")
    try:
        parts = urlsplit(text)
        is_origin = text == f"{parts.scheme}://{parts.netloc}" and _is_host(parts.netloc)
        is_origin = is_origin and parts.port != 0 and len(text) <= ORIGIN_MAX
    except ValueError:
        is_origin = False
    if not is_origin or parts.scheme not in DEFAULT_PORTS:
        raise InvalidValue(
            f"allowed_origins holds {value[:ORIGIN_MAX]!r}; wanted http:// or https://, a host, and"
            " a port if it has one, such as https://app.example.com.",
            param="allowed_origins",
        )
    return text.removesuffix(DEFAULT_PORTS[parts.scheme])


def _is_host(netloc: str) -> bool:
    """Return whether it is a host, with or without a port, in the characters that browsers send."""
    host = urlsplit(f"//{netloc}").hostname
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-._[]:")
    return bool(host) and set(netloc) <= allowed and not netloc.endswith(":")
