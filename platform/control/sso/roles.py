"""Which role a provider gives a person: the most powerful that the map has for what it says of
them, else the default. Never an owner's."""

from collections.abc import Iterable

from control.sso.models import GRANTABLE, Connection
from control.tenants.models import Role


def granted(connection: Connection, values: Iterable[str]) -> str:
    """Return the role for values of the claim and names of groups, empty for none.

    Worked example: the map {"eng": "developer", "it": "admin"} makes an admin of who is in both.
    """
    mapped = {connection.role_map.get(value) for value in values}
    found = [str(role) for role in GRANTABLE if role in mapped]
    return found[0] if found else connection.default_role


def settled(connection: Connection, values: Iterable[str] | None, current: str | None) -> str:
    """Return the role of a seat, empty for none; `values` is None where the provider has no say in
    roles, `current` is None without a seat. An owner stays one: owners are made by owners."""
    if current == Role.OWNER:
        return current
    if values is None or not connection.role_map:
        return current or connection.default_role
    return granted(connection, values)
