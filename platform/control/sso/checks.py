"""What is set up, checked where it enters a service."""

import re
from collections.abc import Mapping

from control.errors import InvalidValue
from control.sso.models import DOMAIN_MAX, GRANTABLE

DOMAIN = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])")
DOMAINS_MAX = 20
MAPPED_MAX = 100
CLAIM_MAX = 200


def domain(value: str) -> str:
    """Return a domain's name as mail addresses have it: ASCII, lower case. Raises InvalidValue."""
    name = value.strip().lower().removeprefix("@").removesuffix(".")
    if len(name) > DOMAIN_MAX or not DOMAIN.fullmatch(name):
        raise InvalidValue(
            "domain must be the part of addresses after @: example.com.", param="domain"
        )
    return name


def text(value: str, param: str, *, longest: int) -> str:
    """Return a text without blanks around it. Raises InvalidValue."""
    stripped = value.strip()
    if len(stripped) > longest or not stripped.isprintable():
        raise InvalidValue(
            f"{param} must have at most {longest} printable characters.", param=param
        )
    return stripped


def role_map(values: Mapping[str, str]) -> dict[str, str]:
    """Return a map of roles. Raises InvalidValue for one that a provider may not give."""
    found = {text(value, "role_map", longest=CLAIM_MAX): role for value, role in values.items()}
    if len(found) > MAPPED_MAX or "" in found:
        raise InvalidValue(
            f"role_map must have at most {MAPPED_MAX} named values.", param="role_map"
        )
    for role in found.values():
        grantable(role, param="role_map")
    return found


def grantable(role: str, *, param: str) -> str:
    """Return a role that a provider may give. Raises InvalidValue."""
    if role not in GRANTABLE:
        raise InvalidValue(f"{param}: {role!r} is none of {', '.join(GRANTABLE)}.", param=param)
    return role
