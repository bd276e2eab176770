"""Where a client is: the one place that says so, for limits, networks of API keys and the audit."""

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from typing import Any

from django.http import HttpRequest

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
SCHEMES = {b"http": "http", b"https": "https"}


def client_address(request: HttpRequest) -> Address | None:
    """Return the client's address, None where the server knows none."""
    return parse_address(request.META.get("REMOTE_ADDR", ""))


def parse_address(written: str) -> Address | None:
    """Return an address however it is written: with a port, in brackets, with a zone, or as IPv4
    mapped into IPv6 (`::ffff:192.0.2.7`), which is IPv4's. None for anything else."""
    host = written.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class TrustedProxies:
    """An ASGI application whose requests say where their clients are. What a request says of that
    (`X-Forwarded-For`, and `-Proto` of the scheme) counts where it comes from a trusted proxy: up
    to the first address, from the right, that is no trusted proxy's."""

    def __init__(self, application: Any, networks: Iterable[Network]) -> None:
        self._application = application
        self._networks = tuple(networks)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a request."""
        peer = scope.get("client")
        if peer is not None and (address := parse_address(peer[0])) is not None:
            scope["client"] = (str(address), peer[1])
            if self._trusts(address):
                self._believe(scope, address)
        await self._application(scope, receive, send)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _believe(self, scope: dict[str, Any], proxy: Address) -> None:
        told = [v for name, v in scope["headers"] if name == b"x-forwarded-for"]
        schemes = [v.strip() for name, v in scope["headers"] if name == b"x-forwarded-proto"]
        if schemes and schemes[-1] in SCHEMES:
            scope["scheme"] = SCHEMES[schemes[-1]]
        client = proxy
        for written in reversed(b",".join(told).decode("latin-1").split(",")):
            address = parse_address(written)
            if address is None:  # from here on nobody knows
                client = proxy
                break
            client = address
            if not self._trusts(address):
                break
        if client != proxy:
            scope["client"] = (str(client), 0)
