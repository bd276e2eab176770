"""Links in mails: from the configured address, never from what a request says its host is."""

from urllib.parse import urlsplit

from django.conf import settings


def absolute(path: str) -> str:
    """Return the public address of a path of the console. Raises ValueError for anything else."""
    if not path.startswith("/") or path.startswith("//") or not path.isprintable():
        raise ValueError("a link is made of a path: /org_…/billing")
    return f"{settings.CONFIG.console_url}{path}"


def rebased(url: str) -> str:
    """Return an address that somebody built from a request, on the configured host instead."""
    parts = urlsplit(url)
    return absolute(parts.path + (f"?{parts.query}" if parts.query else ""))
