"""What of a secret may be stored."""

from django.conf import settings

from serving.contract import key as secret_form

PREFIX_CHARACTERS = 13
"""`pen_live_` and the first four random characters."""


def digest_of(secret: str) -> str:
    """Return what is stored and published of a new secret, under the newest pepper."""
    return digests_of(secret)[0]


def digests_of(secret: str) -> list[str]:
    """Return what may be stored of a secret: its digest under each pepper, the newest first."""
    return [secret_form.digest(secret, pepper.encode()) for pepper in settings.CONFIG.key_peppers]


def newest_pepper_id() -> str:
    """Return the id of the pepper that `digest_of` takes."""
    return secret_form.pepper_id(settings.CONFIG.key_peppers[0])
