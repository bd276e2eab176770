"""Addresses of servers that operators run themselves. They may be in a private network, unlike
those that customers name (`control.egress`)."""

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError

from control.egress import is_allowed

LOOPBACK = ipaddress.ip_address("127.0.0.1")


def check_server_url(value: str) -> None:
    """Raise ValidationError for a URL that a gateway could not call, or must not."""
    if not value.isprintable() or " " in value or "\\" in value:
        raise ValidationError("A URL has no blanks, backslashes or control characters.")
    try:
        url = urlsplit(value)
        is_complete = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        raise ValidationError(f"{value} is not a URL such as http://10.0.0.31:8000.")
    if url.username is not None or url.password is not None:
        raise ValidationError("A URL must have no user name or password.")
    if url.query or url.fragment or value.endswith(("?", "#")):
        raise ValidationError(f"{value} must end before the ? or #.")
    _check_host(str(url.hostname).rstrip("."))


def check_unique(values: Iterable[str], taken: Iterable[str] = ()) -> None:
    """Raise ValidationError for a server that is named twice, or is in `taken`."""
    known = {_normal(each) for each in taken}
    for value in values:
        if _normal(value) in known:
            raise ValidationError(f"{value} is listed already, here or in another deployment.")
        known.add(_normal(value))


def _check_host(host: str) -> None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if _is_disguised(host):
            raise ValidationError(f"{host} is an address in an unusual form.") from None
        if host != "localhost" and not host.endswith(".localhost"):
            return
        address = LOOPBACK
    plain = getattr(address, "ipv4_mapped", None) or address
    if plain.is_loopback and not is_allowed(plain):
        raise ValidationError(
            f"{host} leads to the gateway's own host. If the server runs there, list its network"
            " in PENSTOCK_EGRESS_ALLOWED_NETWORKS."
        )
    is_odd = plain.is_link_local or plain.is_multicast or plain.is_unspecified
    if is_odd or (plain.is_reserved and not plain.is_loopback):
        raise ValidationError(f"{host} is not the address of a server.")


def _is_disguised(host: str) -> bool:
    """Return whether a name is an IPv4 address in another form, such as 2130706433 or 0x7f.1."""
    try:
        socket.inet_aton(host)
    except OSError:
        return False
    return True


def _normal(value: str) -> str:
    url = urlsplit(value)
    port = url.port or (443 if url.scheme == "https" else 80)
    return f"{url.scheme}://{str(url.hostname).rstrip('.')}:{port}{url.path.rstrip('/')}"
