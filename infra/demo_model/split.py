"""Which questions are held out: decided by a hash of the sample's key, so it never changes."""

import hashlib
import re

HELD_OUT_PERCENT = 10
_NOT_WORDS = re.compile(r"[^a-z0-9+*\-/_=.]+")


def normalize(text: str) -> str:
    """Lower case, with everything but words and operators as single spaces."""
    return _NOT_WORDS.sub(" ", text.lower()).strip(" .")


def is_held_out(key: str) -> bool:
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 100 < HELD_OUT_PERCENT
