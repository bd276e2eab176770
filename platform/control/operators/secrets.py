"""Secrets of operator tokens: `pen_op_`, 30 base62 characters and a checksum of 6. Only digests are
stored, with the peppers of API keys."""

from secrets import choice

from django.conf import settings

from serving.contract.key import BASE62, CHECKSUM_CHARACTERS, RANDOM_CHARACTERS, checksum, digest

PREFIX = "pen_op_"
SHOWN_CHARACTERS = len(PREFIX) + 4
"""The length of a secret's beginning that is kept, to recognize it by."""
LENGTH = len(PREFIX) + RANDOM_CHARACTERS + CHECKSUM_CHARACTERS


def make_secret() -> str:
    """Return a new secret."""
    body = PREFIX + "".join(choice(BASE62) for _ in range(RANDOM_CHARACTERS))
    return body + checksum(body)


def is_well_formed(secret: str) -> bool:
    """Return whether a text has the form of a secret and the right checksum."""
    body, check = secret[:-CHECKSUM_CHARACTERS], secret[-CHECKSUM_CHARACTERS:]
    has_form = len(secret) == LENGTH and secret.startswith(PREFIX)
    return has_form and secret.isascii() and checksum(body) == check


def digests_of(secret: str) -> list[str]:
    """Return the digests of a secret with each pepper, the newest first."""
    return [digest(secret, pepper.encode()) for pepper in settings.CONFIG.key_peppers]
