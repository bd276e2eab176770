"""Encryption of small stored secrets, such as a webhook's signing secret, with a key derived from
`PENSTOCK_ENCRYPTION_KEY`, which only control has.

Secrets encrypted with an earlier key can be read while it is in
`PENSTOCK_ENCRYPTION_KEYS_PREVIOUS`; `penstock credentials rotate-encryption` encrypts them with the
newest (`control/management/commands/rotate_encryption.py`).
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


class DecryptionError(Exception):
    """A text cannot be read: it was encrypted with another key or for another purpose."""


def encrypt(text: str, *, purpose: str, with_secret: str = "") -> str:
    """Return the encrypted text; `decrypt` needs the same purpose, and the same `with_secret`.

    A secret of the caller's makes the encryption key alone insufficient.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    cipher = _cipher(settings.CONFIG.encryption_keys[0], with_secret)
    sealed = cipher.encrypt(nonce, text.encode(), purpose.encode())
    return VERSION + urlsafe_b64encode(nonce + sealed).decode()


def decrypt(token: str, *, purpose: str, with_secret: str = "") -> str:
    """Return the text. Raises DecryptionError."""
    text, _ = _open(token, purpose, with_secret)
    return text


def encrypt_anew(token: str, *, purpose: str) -> str | None:
    """Return a token's text encrypted with the newest key; None if it already is.

    Raises DecryptionError.
    """
    text, key = _open(token, purpose)
    is_newest = key == settings.CONFIG.encryption_keys[0]
    return None if is_newest else encrypt(text, purpose=purpose)


def _open(token: str, purpose: str, with_secret: str = "") -> tuple[str, str]:
    """Return the text and the key that decrypted it."""
    if not token.startswith(VERSION):
        raise DecryptionError("the text is of an unknown form")
    for key in settings.CONFIG.encryption_keys:
        try:
            raw = urlsafe_b64decode(token.removeprefix(VERSION))
            nonce, sealed = raw[:NONCE_BYTES], raw[NONCE_BYTES:]
            text = _cipher(key, with_secret).decrypt(nonce, sealed, purpose.encode()).decode()
            return text, key
        except (InvalidTag, ValueError):
            continue
    raise DecryptionError("the text was encrypted with another key or for another purpose")


def _cipher(key: str, with_secret: str = "") -> AESGCM:
    salt = with_secret.encode() or None
    derived = HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"penstock vault v1")
    return AESGCM(derived.derive(key.encode()))
