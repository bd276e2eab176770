"""Secrets on their way to the one page that shows them, past the redirect after a form: encrypted
in the session until they are looked at, and gone then."""

from django.http import HttpRequest

from control import encryption

PURPOSE = "a secret to be shown once"


def keep(request: HttpRequest, name: str, secret: str) -> None:
    """Lay a secret by for the next page."""
    request.session[_place(name)] = encryption.encrypt(secret, purpose=PURPOSE)


def take(request: HttpRequest, name: str) -> str | None:
    """Return what was laid by, once; None where nothing is, or was shown."""
    sealed = request.session.pop(_place(name), None)
    try:
        return None if sealed is None else encryption.decrypt(sealed, purpose=PURPOSE)
    except encryption.DecryptionError:
        return None


def _place(name: str) -> str:
    return f"secret of {name}"
