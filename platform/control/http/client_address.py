"""Where a client is: the one place that says so, for limits, networks of API keys and the audit."""

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest
from rest_framework.request import Request

from serving.contract.client_address import Address, Network, forwarded_address, is_in
from serving.contract.client_address import client_address as parse_address

SCHEMES = {b"http": "http", b"https": "https"}


def client_address(request: HttpRequest | Request) -> Address | None:
    """Return the client's address, None where the server knows none."""
    return parse_address(request.META.get("REMOTE_ADDR", ""))


class TrustedProxies:
    """An ASGI application whose requests say where their clients are. What a request says of that
    (`X-Forwarded-For`, and `-Proto` of the scheme) counts where it comes from a trusted proxy."""

    def __init__(self, application: Any, networks: Iterable[Network]) -> None:
        self._application = application
        self._networks = tuple(networks)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a request."""
        peer = scope.get("client")
        if peer is not None and (address := parse_address(peer[0])) is not None:
            scope["client"] = (str(address), peer[1])
            if is_in(address, self._networks):
                self._believe(scope, address)
        await self._application(scope, receive, send)

    def _believe(self, scope: dict[str, Any], proxy: Address) -> None:
        told = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        schemes = [v.strip() for name, v in scope["headers"] if name == b"x-forwarded-proto"]
        if schemes and schemes[-1] in SCHEMES:
            scope["scheme"] = SCHEMES[schemes[-1]]
        forwarded = [value.decode("latin-1") for value in told]
        client = forwarded_address(str(proxy), forwarded, self._networks)
        if client not in (None, proxy):  # a proxy may name nobody, or nonsense
            scope["client"] = (str(client), 0)
