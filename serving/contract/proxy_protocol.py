"""The PROXY protocol (haproxy.org, proxy-protocol.txt), v1 and v2: whose connection a balancer
passes on, said ahead of all else."""

from ipaddress import IPv4Address, IPv6Address
from struct import unpack_from
from typing import NamedTuple

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES = 16
V1_BEGIN = b"PROXY "
V1_BYTES_MAX = 107
V2_BYTES_MAX = 536
"""A header that arrives in one segment on every network. At most 216 of it are addresses; the rest
says what nobody here asks for."""
PROXY_HEADER_SECONDS = 5.0
"""From the opening of a connection to the end of its header."""
LOCAL, PROXY = 0x20, 0x21
TCP4, TCP6 = 0x11, 0x21


class NotProxied(Exception):
    """The connection does not begin as the PROXY protocol has it."""


class ProxyHeader(NamedTuple):
    """Whose connection it is (None: the balancer's own, as of its health checks), and how many
    bytes said so."""

    client: tuple[str, int] | None
    size: int


def begins_with_proxy_header(data: bytes) -> bool:
    """Tell whether a connection's first bytes are those of a PROXY header."""
    return data.startswith((SIGNATURE, V1_BEGIN))


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Return the header that a connection began with; None while more of it is to come. Raises
    NotProxied."""
    if data[: len(SIGNATURE)] == SIGNATURE[: len(data)]:
        return _read_v2(data)
    if data[: len(V1_BEGIN)] == V1_BEGIN[: len(data)]:
        return _read_v1(data)
    raise NotProxied


def _read_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < HEAD_BYTES:
        return None
    command, family, length = unpack_from("!BBH", data, len(SIGNATURE))
    size = HEAD_BYTES + length
    if command not in (LOCAL, PROXY) or size > V2_BYTES_MAX:
        raise NotProxied
    if len(data) < size:
        return None
    if command == LOCAL or family not in (TCP4, TCP6):
        return ProxyHeader(None, size)
    if length < (12 if family == TCP4 else 36):
        raise NotProxied
    if family == TCP4:
        source, _, port = unpack_from("!4s4sH", data, HEAD_BYTES)
        return ProxyHeader((str(IPv4Address(source)), port), size)
    source, _, port = unpack_from("!16s16sH", data, HEAD_BYTES)
    return ProxyHeader((str(IPv6Address(source)), port), size)


def _read_v1(data: bytes) -> ProxyHeader | None:
    line, end, _ = data[:V1_BYTES_MAX].partition(b"\r\n")
    if not end:
        if len(data) >= V1_BYTES_MAX:
            raise NotProxied
        return None
    size = len(line) + 2
    words = line.split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return ProxyHeader(None, size)
    try:
        _, family, source, _, port, _ = (word.decode("ascii") for word in words)
        address = {"TCP4": IPv4Address, "TCP6": IPv6Address}[family](source)
        return ProxyHeader((str(address), int(port)), size)
    except (ValueError, KeyError):
        raise NotProxied from None
