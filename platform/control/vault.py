"""Small secrets that must be read again, such as a webhook's signing secret: encrypted in the
database with a key derived from `PENSTOCK_KEY_PEPPER`, which is not in the database.

What an earlier pepper encrypted is read while that is among `PENSTOCK_KEY_PEPPERS_OLD`; without it
they end, as API keys do.
"""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

VERSION = "v1:"
NONCE_BYTES = 12


class VaultError(Exception):
    """A text cannot be read: it was encrypted with another pepper or for another purpose."""


def encrypt(text: str, *, purpose: str) -> str:
    """Return the text encrypted; only `decrypt` with the same purpose reads it."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = AESGCM(_key(settings.CONFIG.key_peppers[0])).encrypt(
        nonce, text.encode(), purpose.encode()
    )
    return VERSION + urlsafe_b64encode(nonce + sealed).decode()


def decrypt(token: str, *, purpose: str) -> str:
    """Return the text. Raises VaultError."""
    if not token.startswith(VERSION):
        raise VaultError("the text is of an unknown form")
    for pepper in settings.CONFIG.key_peppers:
        try:
            raw = urlsafe_b64decode(token.removeprefix(VERSION))
            nonce, sealed = raw[:NONCE_BYTES], raw[NONCE_BYTES:]
            return AESGCM(_key(pepper)).decrypt(nonce, sealed, purpose.encode()).decode()
        except (InvalidTag, ValueError):
            continue
    raise VaultError("the text was encrypted with another pepper or purpose")


def _key(pepper: str) -> bytes:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"penstock vault v1")
    return derived.derive(pepper.encode())
