"""Limits on password and code attempts, counted across all processes, and on concurrent sign-ins
(decision 0024).

An attempt is counted before the password is checked and released if it was right, so that
concurrent attempts cannot get around a limit. Windows are aligned to the clock, so the end of a
window is known without a query.
"""

import hashlib
import ipaddress
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore, local
from typing import Literal

from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.utils.translation import gettext, ngettext

SLACK_SECONDS = 60
"""The time that a counter is kept beyond its window, so that none expires while it is changed:
Redis would then keep it for ever."""
KNOWN_SECONDS = 90 * 24 * 3600
"""The time for which a network is trusted after the account's last sign-in from it."""
CONCURRENT_LOGINS_MAX = max(2, os.cpu_count() or 2)
"""Per process. A sign-in hashes a password, queries the database twenty times and needs the
interpreter in between. Under a flood from sixteen connections other requests took 640 ms (p95)
without this bound and the pauses of `RateLimitedLoginView`, 280 ms with them."""
WAIT_SECONDS = 2.0
_all = BoundedSemaphore(CONCURRENT_LOGINS_MAX)
_strangers = BoundedSemaphore(CONCURRENT_LOGINS_MAX - 1)
"""For unknown devices on unknown networks; one slot remains for everybody else."""
_thread = local()
TOO_MANY_ATTEMPTS = "too_many_tries"
"""Code of the ValidationError after too many attempts; its params hold the `seconds` to wait."""


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """A number of wrong passwords that are allowed in a window."""

    name: str
    amount: int
    seconds: int


DEVICE = AttemptLimit("device", 10, 300)
"""Attempts from a device that signed in to the account before. Only this limit applies to it, so
attempts from elsewhere cannot exhaust it."""
PAIR = AttemptLimit("pair", 5, 300)
"""Attempts on one account from one network, by unknown devices."""
ACCOUNT = AttemptLimit("account", 50, 3600)
"""Attempts on one account from all networks that it never signed in from."""
NETWORK = AttemptLimit("network", 100, 600)
"""Attempts from one network on all accounts that never signed in from it."""


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """An attempt on an account. `email` is as typed, `device` the id of a trusted device or None,
    and `of` the kind of secret."""

    email: str
    address: str
    device: str | None = None
    of: str = "password"


@dataclass(frozen=True, slots=True)
class AttemptReservation:
    """The counters that an attempt holds until it is released."""

    keys: tuple[str, ...]
    wait_seconds: int = 0
    """Time until the next attempt if this one is refused; a refused attempt holds no counters."""

    @property
    def is_refused(self) -> bool:
        """Whether the password must not be checked."""
        return self.wait_seconds > 0


def reserve(attempt: LoginAttempt, now: float) -> AttemptReservation:
    """Count an attempt against its limits, or refuse it."""
    limits = {
        _key(attempt.of, limit.name, subject, str(int(now // limit.seconds))): limit
        for limit, subject in _limits_of(attempt)
    }
    # Read first: a flood that is refused writes nothing.
    counts = cache.get_many(limits)
    exhausted = [limit for key, limit in limits.items() if counts.get(key, 0) >= limit.amount]
    if exhausted:
        return _refuse(exhausted, now)
    reserved: list[str] = []
    for key, limit in limits.items():
        reserved.append(key)
        if _increment(key, limit.seconds + SLACK_SECONDS) > limit.amount:
            release(AttemptReservation(tuple(reserved)))
            return _refuse([limit], now)
    return AttemptReservation(tuple(reserved))


def release(reservation: AttemptReservation) -> None:
    """Uncount an attempt whose password was right or was never checked."""
    for key in reservation.keys:
        try:
            cache.decr(key)
        except ValueError:
            continue  # The window is over.


def trust_network(email: str, address: str) -> None:
    cache.set(_key("known", account_of(email), network_of(address)), 1, KNOWN_SECONDS)


def is_trusted_network(email: str, address: str) -> bool:
    """Return whether the account signed in from the network within `KNOWN_SECONDS`."""
    return bool(cache.get(_key("known", account_of(email), network_of(address))))


def account_of(email: str) -> str:
    """Return the id that an account's attempts are counted by, whether or not it exists."""
    return hashlib.sha256(email.strip().lower().encode(errors="replace")).hexdigest()[:32]


def network_of(address: str) -> str:
    """Return the network that one customer of an ISP has: /24 for IPv4, /64 for IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    bits = 24 if parsed.version == 4 else 64
    return str(ipaddress.ip_network(f"{parsed}/{bits}", strict=False))


def _limits_of(attempt: LoginAttempt) -> list[tuple[AttemptLimit, str]]:
    account, network = account_of(attempt.email), network_of(attempt.address)
    if attempt.device is not None:
        return [(DEVICE, attempt.device)]
    limits = [(PAIR, f"{account}:{network}")]
    if not is_trusted_network(attempt.email, attempt.address):
        limits += [(NETWORK, network), (ACCOUNT, account)]
    return limits


def _refuse(exhausted: list[AttemptLimit], now: float) -> AttemptReservation:
    wait_seconds = max(limit.seconds - now % limit.seconds for limit in exhausted)
    return AttemptReservation((), max(1, math.ceil(wait_seconds)))


def _increment(key: str, seconds: int) -> int:
    cache.add(key, 0, seconds)
    try:
        return cache.incr(key)
    except ValueError:  # The window ended, or Redis stopped or started, since the line above.
        cache.set(key, 1, seconds)
        return 1


def _key(*parts: str) -> str:
    return ":".join(("sign_in", *parts))


class ConcurrencyLimitExceeded(Exception):
    """No login slot was free in time."""


@contextmanager
def login_slot(*, is_known: bool) -> Iterator[None]:
    """Wait for a login slot and hold it until the block ends; a nested call takes no second slot.
    Raises ConcurrencyLimitExceeded after `WAIT_SECONDS`."""
    if getattr(_thread, "is_held", False):
        yield
        return
    with _acquired(*([_all] if is_known else [_strangers, _all])):
        _thread.is_held = True
        try:
            yield
        finally:
            _thread.is_held = False


@contextmanager
def _acquired(*semaphores: BoundedSemaphore) -> Iterator[None]:
    held: list[BoundedSemaphore] = []
    try:
        for semaphore in semaphores:
            if not semaphore.acquire(timeout=WAIT_SECONDS):
                raise ConcurrencyLimitExceeded
            held.append(semaphore)
        yield
    finally:
        for semaphore in held:
            semaphore.release()


def wait_text(seconds: int) -> str:
    """Return a wait in words, rounded up."""
    if seconds < 90:
        words = ngettext("%(number)d second", "%(number)d seconds", seconds)
        return words % {"number": seconds}
    minutes = math.ceil(seconds / 60)
    return ngettext("%(number)d minute", "%(number)d minutes", minutes) % {"number": minutes}


def too_many_attempts(of: Literal["passwords", "codes"], seconds: int) -> ValidationError:
    """Return the form error after too many attempts, with the time until the next one."""
    if of == "codes":
        message = gettext("Too many wrong codes. Try again in %(wait)s.")
    else:
        message = gettext("Too many wrong passwords. Try again in %(wait)s.")
    message %= {"wait": wait_text(seconds)}
    return ValidationError(message, code=TOO_MANY_ATTEMPTS, params={"seconds": seconds})
