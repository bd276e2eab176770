"""How often a password or a code may be tried, counted for all processes, and how many sign-ins are
worked on at once (decision 0036).

An attempt is counted before the password is looked at and released when it was right, so that many
at once are no way around. A window begins with the clock's, so its end is known without asking.
"""

import hashlib
import ipaddress
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore, local

from django.core.cache import cache
from django.core.exceptions import ValidationError

SLACK_SECONDS = 60
"""How much longer than its window a count is kept, so that none ends while it is changed: Redis
would count on for ever."""
KNOWN_SECONDS = 90 * 24 * 3600
"""How long a network counts as an account's own after the last sign-in from there."""
CONCURRENT_LOGINS_MAX = max(2, os.cpu_count() or 2)
"""In a process. Each sign-in hashes, asks the database twenty times and wants the interpreter
between; under a flood from sixteen connections others took 640 ms (p95) without this bound and the
rests of `RateLimitedLoginView`, 280 ms with them."""
WAIT_SECONDS = 2.0
_all = BoundedSemaphore(CONCURRENT_LOGINS_MAX)
_strangers = BoundedSemaphore(CONCURRENT_LOGINS_MAX - 1)
"""For unknown devices on unknown networks: one slot is left for everybody else."""
_mine = local()
TOO_MANY_ATTEMPTS = "too_many_tries"
"""The code of the error that says when to try again; its parameters hold the `seconds`."""


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """How many wrong passwords there may be in a window."""

    name: str
    amount: int
    seconds: int


DEVICE = AttemptLimit("device", 10, 300)
"""From a device that signed in to the account before. Nothing else is counted there, so nobody
elsewhere can use it up."""
PAIR = AttemptLimit("pair", 5, 300)
"""For an account from a network, by devices that nobody knows."""
ACCOUNT = AttemptLimit("account", 50, 3600)
"""For an account from all networks that it never signed in from."""
NETWORK = AttemptLimit("network", 100, 600)
"""From a network for all accounts that never signed in from there."""


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One attempt: at which account (as typed), from which address, on which trusted device, with a
    password or with what else."""

    email: str
    address: str
    device: str | None = None
    of: str = "password"


@dataclass(frozen=True, slots=True)
class AttemptReservation:
    """What an attempt counts against its limits, until it is released."""

    keys: tuple[str, ...]
    wait_seconds: int = 0
    """Until the next attempt, where this one is refused; nothing is counted then."""

    @property
    def is_refused(self) -> bool:
        """Whether the password is not to be looked at."""
        return self.wait_seconds > 0


def reserve(attempt: LoginAttempt, now: float) -> AttemptReservation:
    """Count an attempt, or refuse it."""
    counted = {
        _key(attempt.of, each.name, by, str(int(now // each.seconds))): each
        for each, by in _limits_of(attempt)
    }
    # Looked at first: a flood that is refused writes nothing.
    counts = cache.get_many(counted)
    used_up = [each for key, each in counted.items() if counts.get(key, 0) >= each.amount]
    if used_up:
        return _refuse(used_up, now)
    taken: list[str] = []
    for key, each in counted.items():
        taken.append(key)
        if _add(key, each.seconds + SLACK_SECONDS) > each.amount:
            release(AttemptReservation(tuple(taken)))
            return _refuse([each], now)
    return AttemptReservation(tuple(taken))


def release(reservation: AttemptReservation) -> None:
    """Forget an attempt: the password was right, or was never looked at."""
    for key in reservation.keys:
        try:
            cache.decr(key)
        except ValueError:
            continue  # its window is over


def trust_network(email: str, address: str) -> None:
    """Take a network as one of the account's own."""
    cache.set(_key("known", account_of(email), network_of(address)), 1, KNOWN_SECONDS)


def is_trusted_network(email: str, address: str) -> bool:
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


def _limits_of(attempt: LoginAttempt) -> list[tuple[AttemptLimit, str]]:
    account, network = account_of(attempt.email), network_of(attempt.address)
    if attempt.device is not None:
        return [(DEVICE, attempt.device)]
    counted = [(PAIR, f"{account}:{network}")]
    if not is_trusted_network(attempt.email, attempt.address):
        counted += [(NETWORK, network), (ACCOUNT, account)]
    return counted


def _refuse(used_up: list[AttemptLimit], now: float) -> AttemptReservation:
    left = max(each.seconds - now % each.seconds for each in used_up)
    return AttemptReservation((), max(1, math.ceil(left)))


def _add(key: str, seconds: int) -> int:
    cache.add(key, 0, seconds)
    try:
        return cache.incr(key)
    except ValueError:  # its window ended, or Redis went or came, since the line above
        cache.set(key, 1, seconds)
        return 1


def _key(*parts: str) -> str:
    return ":".join(("sign_in", *parts))


class ConcurrencyLimitExceeded(Exception):
    """No login slot was free in time."""


@contextmanager
def login_slot(*, is_known: bool) -> Iterator[None]:
    """Wait for a login slot and hold it until the block ends; a nested one costs nothing. Raises
    ConcurrencyLimitExceeded after WAIT_SECONDS."""
    if getattr(_mine, "is_held", False):
        yield
        return
    with _one_of(*([_all] if is_known else [_strangers, _all])):
        _mine.is_held = True
        try:
            yield
        finally:
            _mine.is_held = False


@contextmanager
def _one_of(*semaphores: BoundedSemaphore) -> Iterator[None]:
    held: list[BoundedSemaphore] = []
    try:
        for each in semaphores:
            if not each.acquire(timeout=WAIT_SECONDS):
                raise ConcurrencyLimitExceeded
            held.append(each)
        yield
    finally:
        for each in held:
            each.release()


def wait_text(seconds: int) -> str:
    """Return a time to wait in words, never shorter than it is."""
    if seconds < 90:
        return f"{seconds} second{'' if seconds == 1 else 's'}"
    return f"{math.ceil(seconds / 60)} minutes"


def too_many_attempts(of: str, seconds: int) -> ValidationError:
    """Return a form's error after too many attempts, with the time of the next one."""
    words = f"Too many wrong {of}. Try again in {wait_text(seconds)}."
    return ValidationError(words, code=TOO_MANY_ATTEMPTS, params={"seconds": seconds})
