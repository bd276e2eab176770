"""Secrets on their way to the one page that shows them, past the redirect after a form: encrypted
in the session until they are looked at, and gone then."""

from django.http import HttpRequest

from control import encryption

PURPOSE = "a secret to be shown once"


def store_once(request: HttpRequest, name: str, secret: str) -> None:
    """Lay a secret by for the next page."""
    request.session[_session_key(name)] = encryption.encrypt(secret, purpose=PURPOSE)


def pop_once(request: HttpRequest, name: str) -> str | None:
    """Return what was laid by, once; None where nothing is, or was shown."""
    sealed = request.session.pop(_session_key(name), None)
    try:
        return None if sealed is None else encryption.decrypt(sealed, purpose=PURPOSE)
    except encryption.DecryptionError:
        return None


def _session_key(name: str) -> str:
    return f"secret of {name}"
