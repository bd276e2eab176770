"""Digests of API key secrets, the only form in which they are stored."""

from django.conf import settings

from serving.contract import key as secret_form

PREFIX_CHARACTERS = 13
"""`pen_live_` and the first four random characters."""


def digest_of(secret: str) -> str:
    """Return the digest to store and publish of a new secret, with the newest pepper."""
    return digests_of(secret)[0]


def digests_of(secret: str) -> list[str]:
    """Return the digests of a secret with each pepper, the newest first."""
    return [secret_form.digest(secret, pepper.encode()) for pepper in settings.CONFIG.key_peppers]


def newest_pepper_id() -> str:
    """Return the id of the pepper that `digest_of` uses."""
    return secret_form.pepper_id(settings.CONFIG.key_peppers[0])
