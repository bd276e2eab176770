"""A client's address, from whatever names it: a socket, a balancer's header, a proxy's."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def client_address(text: str) -> Address | None:
    """Return the address that a text names, without port, brackets and zone, and IPv4 where it is
    written as IPv6 (`::ffff:192.0.2.1`). None for what names none."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def is_in(address: Address | None, networks: Sequence[Network]) -> bool:
    """Tell whether an address is in any of some networks."""
    return address is not None and any(address in network for network in networks)


class UnknownProxy:
    """Notices, once, a load balancer that no setting names."""

    def __init__(self, *settings: Sequence[Network]) -> None:
        self.is_watching = not any(settings)
        """Whether none is named, and none was noticed yet."""

    def notice(self, peer: str, sign: str) -> str:
        """Return what to tell the operator of a peer that sent such a sign of a balancer."""
        self.is_watching = False
        return (
            f"{sign} came from {peer}, but neither PENSTOCK_TRUSTED_PROXIES nor"
            " PENSTOCK_PROXY_PROTOCOL_FROM is set. If that is your load balancer, name it in one of"
            " them: until then all clients share its address and its limits, and keys bound to"
            " networks are refused"
        )


def forwarded_address(
    peer: str, forwarded: Sequence[str], trusted: Sequence[Network]
) -> Address | None:
    """Return whose request it is that came from `peer`, with these `X-Forwarded-For` headers: the
    last address in them that is no trusted proxy's, since what stands before it anybody may have
    written. None where a trusted proxy names nobody."""
    address = client_address(peer)
    hops = [hop for header in forwarded for hop in header.split(",")]
    while hops and is_in(address, trusted):
        address = client_address(hops.pop())
    return address
