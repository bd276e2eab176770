"""Which addresses an endpoint may have: its letters when it is set, its IP at each connect."""

import ipaddress
import re
import socket
from collections.abc import Collection
from typing import TypeAlias

import httpx
from django.conf import settings

from control.errors import InvalidValue
from control.webhooks.errors import Forbidden
from control.webhooks.models import URL_MAX

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
FORBIDDEN = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # Azure's own services, in a public range
            "192.88.99.0/24",  # 6to4 relays
            "::/96",  # IPv4 in old IPv6 clothes
            "64:ff9b::/96",  # NAT64
            "64:ff9b:1::/48",
            "2001::/32",  # Teredo
            "2002::/16",  # 6to4
            "fec0::/10",  # site-local
        ),
    )
)
"""What Python's `is_global` lets pass and yet may lead into a network behind us."""
LOCAL_NAMES = (
    "localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "localdomain",
    "home.arpa", "onion",
)  # fmt: skip
NAME_MAX = 253
LABEL = re.compile("[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
"""What the domain name system takes between two dots."""
PORT_MIN = 1024
"""Lower ports than this, except the scheme's own, belong to other protocols."""


def check_url(value: str) -> str:
    """Return an address in its normal form. Raises InvalidValue saying what is wrong with it.

    What its host leads to is checked at each connect: names can change what they mean.
    """
    text = value.strip()
    if not text.isprintable() or "\\" in text or " " in text:
        raise _invalid("url must have no blanks, backslashes or control characters.")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise _invalid("url must be an address: https://example.com/hooks.") from error
    _check_scheme(url)
    if url.userinfo or url.fragment:
        raise _invalid("url must have no user name, password or fragment.")
    _check_host(url.raw_host.decode().rstrip("."))
    own = 443 if url.scheme == "https" else 80
    if url.port is not None and url.port != own and not PORT_MIN <= url.port < 2**16:
        raise _invalid(f"url must have the port {own}, or one from {PORT_MIN} on.")
    if len(str(url)) > URL_MAX:
        raise _invalid(f"url must have at most {URL_MAX} characters, others than ASCII escaped.")
    return str(url)


def checked_addresses(host: str, found: Collection[str]) -> list[Address]:
    """Return what a name resolved to, every one allowed. Raises Forbidden.

    One forbidden address among them is enough: an honest name has none.
    """
    addresses = [ipaddress.ip_address(each.partition("%")[0]) for each in found]
    if not addresses or not all(is_allowed(address) for address in addresses):
        raise Forbidden(f"{host} does not lead to a public address")
    return addresses


def is_allowed(address: Address) -> bool:
    """Tell whether webhooks may go to an IP address: a public one, or a network of the setting."""
    plain = getattr(address, "ipv4_mapped", None) or address
    if any(plain in network for network in settings.CONFIG.webhook_networks):
        return True
    if not plain.is_global or plain.is_multicast or plain.is_reserved or plain.is_unspecified:
        return False
    return not any(plain in network for network in FORBIDDEN)


def _check_scheme(url: httpx.URL) -> None:
    if url.scheme == "https" or (url.scheme == "http" and settings.CONFIG.webhook_http):
        return
    raise _invalid("url must begin with https://.")


def _check_host(host: str) -> None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        _check_name(host.lower())
    else:
        if not is_allowed(address):
            raise _invalid("url must not lead to a private, local or reserved address.")


def _check_name(name: str) -> None:
    labels = name.split(".")
    try:
        socket.inet_aton(name)
    except OSError:
        is_disguised = False
    else:
        is_disguised = True  # such as 2130706433, 0x7f.1 or 0177.0.0.1
    is_local = any(name == each or name.endswith(f".{each}") for each in LOCAL_NAMES)
    is_name = len(name) <= NAME_MAX and all(map(LABEL.fullmatch, labels))
    if is_disguised or len(labels) < 2 or not is_name or is_local or labels[-1].isdigit():
        raise _invalid("url must have a public host name.")


def _invalid(message: str) -> InvalidValue:
    return InvalidValue(message, param="url")
