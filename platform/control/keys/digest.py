"""What of a secret may be stored."""

from django.conf import settings

from serving.contract import key as secret_form

PREFIX_CHARACTERS = 13
"""`pen_live_` and the first four random characters."""


def digest_of(secret: str) -> str:
    """Return what is stored and published of a secret."""
    return secret_form.digest(secret, settings.CONFIG.key_pepper.encode())
