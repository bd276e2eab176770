"""How often a password may be tried, counted for all processes (decision 0036).

A try is counted before the password is looked at and given back when it was right, so that many at
once are no way around. A window begins with the clock's, so its end is known without asking.
"""

import hashlib
import ipaddress
import math
from dataclasses import dataclass

from django.core.cache import cache

SLACK_SECONDS = 60
"""How much longer than its window a count is kept, so that none ends while it is changed: Redis
would count on for ever."""
KNOWN_SECONDS = 90 * 24 * 3600
"""How long a network counts as an account's own after the last sign-in from there."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """So many wrong passwords in so many seconds."""

    name: str
    amount: int
    seconds: int


DEVICE = Allowance("device", 10, 300)
"""From a device that signed in to the account before. Nothing else is counted there, so nobody
elsewhere can use it up."""
PAIR = Allowance("pair", 5, 300)
"""For an account from a network, by devices that nobody knows."""
ACCOUNT = Allowance("account", 50, 3600)
"""For an account from all networks that it never signed in from."""
NETWORK = Allowance("network", 100, 600)
"""From a network for all accounts that never signed in from there."""


@dataclass(frozen=True, slots=True)
class Try:
    """One try: of which account (as it was typed), from which address, on which known device, of a
    password or of what else."""

    email: str
    address: str
    device: str | None = None
    of: str = "password"


@dataclass(frozen=True, slots=True)
class Taken:
    """What a try took of its allowances."""

    keys: tuple[str, ...]
    wait_seconds: int = 0
    """Until the next try, where this one is refused; it took nothing then."""

    @property
    def is_refused(self) -> bool:
        """Whether the password is not to be looked at."""
        return self.wait_seconds > 0


def take(tried: Try, now: float) -> Taken:
    """Count a try, or refuse it."""
    counted = {
        _key(tried.of, each.name, by, str(int(now // each.seconds))): each
        for each, by in _allowances(tried)
    }
    # Looked at first: a flood that is refused writes nothing.
    counts = cache.get_many(counted)
    used_up = [each for key, each in counted.items() if counts.get(key, 0) >= each.amount]
    if used_up:
        return _refused(used_up, now)
    taken: list[str] = []
    for key, each in counted.items():
        taken.append(key)
        if _add(key, each.seconds + SLACK_SECONDS) > each.amount:
            give_back(Taken(tuple(taken)))
            return _refused([each], now)
    return Taken(tuple(taken))


def give_back(taken: Taken) -> None:
    """Forget a try: the password was right, or was never looked at."""
    for key in taken.keys:
        try:
            cache.decr(key)
        except ValueError:
            continue  # its window is over


def know_network(email: str, address: str) -> None:
    """Take a network as one of the account's own."""
    cache.set(_key("known", account_of(email), network_of(address)), 1, KNOWN_SECONDS)


def is_network_known(email: str, address: str) -> bool:
    """Tell whether the account signed in from there lately."""
    return bool(cache.get(_key("known", account_of(email), network_of(address))))


def account_of(email: str) -> str:
    """Return what an account is counted by, whether there is one or not."""
    return hashlib.sha256(email.strip().lower().encode(errors="replace")).hexdigest()[:32]


def network_of(address: str) -> str:
    """Return the network that one customer of a provider has: /24 of IPv4, /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    bits = 24 if found.version == 4 else 64
    return str(ipaddress.ip_network(f"{found}/{bits}", strict=False))


def _allowances(tried: Try) -> list[tuple[Allowance, str]]:
    account, network = account_of(tried.email), network_of(tried.address)
    if tried.device is not None:
        return [(DEVICE, tried.device)]
    counted = [(PAIR, f"{account}:{network}")]
    if not is_network_known(tried.email, tried.address):
        counted += [(NETWORK, network), (ACCOUNT, account)]
    return counted


def _refused(used_up: list[Allowance], now: float) -> Taken:
    left = max(each.seconds - now % each.seconds for each in used_up)
    return Taken((), max(1, math.ceil(left)))


def _add(key: str, seconds: int) -> int:
    cache.add(key, 0, seconds)
    try:
        return cache.incr(key)
    except ValueError:  # its window ended, or Redis went or came, since the line above
        cache.set(key, 1, seconds)
        return 1


def _key(*parts: str) -> str:
    return ":".join(("sign_in", *parts))
