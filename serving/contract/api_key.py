"""API keys: `pen_live_`, 30 base62 characters, 6 of CRC-32 in base62. Those that once began with
`pen_test_` are keys like others.

The checksum lets scanners and the gateway reject typing errors without a look-up. What is
stored, and travels in the change feed, is the HMAC-SHA-256 digest under a pepper. There may be
several: the newest makes digests, whoever looks a key up tries all.
"""

import hmac
import re
import zlib
from collections.abc import Callable

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM_CHARACTERS = 30
CHECKSUM_CHARACTERS = 6
_SHAPE = re.compile(r"pen_(?:live|test)_[0-9A-Za-z]{36}", re.ASCII)


_PAIRS = [first + second for first in BASE62 for second in BASE62]


def checksum(body: str) -> str:
    """Return the six characters that end a key whose first 39 characters are `body`: their CRC-32
    in base 62, written two digits at a time."""
    rest, last = divmod(zlib.crc32(body.encode()), 62**2)
    first, middle = divmod(rest, 62**2)
    return _PAIRS[first] + _PAIRS[middle] + _PAIRS[last]


def make_secret(choose: Callable[[str], str]) -> str:
    """Return a new secret; `choose` picks one character (`secrets.choice` in production)."""
    body = "pen_live_" + "".join(choose(BASE62) for _ in range(RANDOM_CHARACTERS))
    return body + checksum(body)


def is_well_formed(secret: str) -> bool:
    """Tell whether `secret` has the shape of a key and the right checksum."""
    if _SHAPE.fullmatch(secret) is None:
        return False
    body, check = secret[:-CHECKSUM_CHARACTERS], secret[-CHECKSUM_CHARACTERS:]
    return checksum(body) == check


def digest(secret: str, pepper: bytes) -> str:
    """Return the hex digest that identifies a secret without revealing it."""
    return hmac.digest(pepper, secret.encode(), "sha256").hex()


def pepper_id(pepper: str) -> str:
    """Return what a pepper is called where it must not be shown, made of itself."""
    return hmac.digest(pepper.encode(), b"penstock pepper id", "sha256").hex()[:8]
