"""Secrets that the page after a form shows once: encrypted in the session until then, and then
deleted."""

from django.http import HttpRequest

from control import encryption

PURPOSE = "a secret to be shown once"


def store_once(request: HttpRequest, name: str, secret: str) -> None:
    """Store a secret for the next page."""
    request.session[_session_key(name)] = encryption.encrypt(secret, purpose=PURPOSE)


def pop_once(request: HttpRequest, name: str) -> str | None:
    """Return a stored secret and delete it; None if there is none, or it was shown already."""
    sealed = request.session.pop(_session_key(name), None)
    try:
        return None if sealed is None else encryption.decrypt(sealed, purpose=PURPOSE)
    except encryption.DecryptionError:
        return None


def _session_key(name: str) -> str:
    return f"secret of {name}"
