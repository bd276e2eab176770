"""The connections of clients: how many there may be, in all and of one address.

A connection on which nothing is asked or answered is idle. Where there are too many, the one goes
that has been idle longest, so that who holds connections and asks nothing keeps nobody out.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from ipaddress import IPv6Address, IPv6Network
from typing import Protocol

from serving.contract.client_address import Network, UnknownProxy, client_address, is_in

ADDRESS_SHARE = 4
"""One address has at most the fourth part of all, unless told otherwise."""


def place_of(host: str) -> str:
    """Return what counts as one address: of IPv6 the /64, all of which is one client's."""
    if ":" not in host:
        return host
    address = client_address(host)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address)


class ClientLine(Protocol):
    """A connection, which can be closed at once."""

    def close_now(self) -> None: ...


class ConnectionLimits:
    """Of one listener; `most_of_one` bounds those of an address."""

    def __init__(self, most: int, most_of_one: int | None = None) -> None:
        self.most = most
        self.most_of_one = most // ADDRESS_SHARE if most_of_one is None else most_of_one
        self.is_retiring = False
        """Whether answers close their connections: the gateway is about to end."""
        self.proxy_protocol_from: tuple[Network, ...] = ()
        """Whose connections begin with whose they are (`contract/proxy_protocol.py`)."""
        self.shared: tuple[Network, ...] = ()
        """Addresses of balancers that pass on requests, of any number of clients each."""
        self.unknown_proxy = UnknownProxy()
        """Balancers that nobody named, though clients come through them."""
        self.refused = 0
        self.unreadable = 0
        """Requests that were no HTTP, or had too much around their bodies."""
        self.closed_idle = 0
        self._count = 0
        self._of: Counter[str] = Counter()
        self._idle: dict[ClientLine, str] = {}
        self._idle_of: defaultdict[str, dict[ClientLine, None]] = defaultdict(dict)

    def __len__(self) -> int:
        return self._count

    @property
    def addresses(self) -> Collection[str]:
        """Whose there are."""
        return self._of.keys()

    def is_proxied(self, host: str) -> bool:
        """Tell whether a connection begins with whose it is."""
        networks = self.proxy_protocol_from
        return bool(networks) and is_in(client_address(host), networks)

    def _is_shared(self, address: str) -> bool:
        return bool(self.shared) and is_in(client_address(address.partition("/")[0]), self.shared)

    def enter(self, line: ClientLine, address: str) -> bool:
        """Count a new connection, which is idle; False when there is no room for it."""
        if self._of[address] >= self.most_of_one and not self._is_shared(address):
            has_room = self._close_one(self._idle_of.get(address, {}))
        else:
            has_room = self._count < self.most or self._close_one(self._idle)
        if not has_room:
            self.refused += 1
            self._forget_address(address)
            return False
        self._count += 1
        self._of[address] += 1
        self.note_idle(line, address)
        return True

    def note_idle(self, line: ClientLine, address: str) -> None:
        """Nothing is asked on it."""
        self._idle[line] = address
        self._idle_of[address][line] = None

    def note_busy(self, line: ClientLine, address: str) -> None:
        """A request came on it."""
        if self._idle.pop(line, None) is not None:
            del self._idle_of[address][line]

    def leave(self, line: ClientLine, address: str) -> None:
        """It is closed."""
        self.note_busy(line, address)
        self._count -= 1
        self._of[address] -= 1
        self._forget_address(address)

    def _close_one(self, idle: dict[ClientLine, str] | dict[ClientLine, None]) -> bool:
        line = next(iter(idle), None)
        if line is None:
            return False
        self.closed_idle += 1
        self.note_busy(line, self._idle[line])
        line.close_now()
        return True

    def _forget_address(self, address: str) -> None:
        if not self._of[address]:
            del self._of[address]
            self._idle_of.pop(address, None)
