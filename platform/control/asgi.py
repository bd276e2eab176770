"""The ASGI applications of control: one Django application behind two listeners. The public one
hides the internal API, the internal one serves nothing else; both serve health checks."""

import os
import re
from collections.abc import Callable
from typing import Any

import django

from control.dataplane.authentication import body_bytes_max, is_internal

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
django.setup(set_prefix=False)

# These imports need Django to be set up.
from control.asgi_middleware import ControlHandler, limit_bodies  # noqa: E402
from control.db.connection import for_gateways  # noqa: E402
from control.telemetry.health import (  # noqa: E402
    Application,
    Health,
    Receive,
    Send,
    checks,
    health_middleware,
    respond_plain,
)

PUBLIC_BODY_BYTES_MAX = 256 * 2**10
LARGER_BODIES = (
    (re.compile(r"/api/|/scim/"), 2**20),
    (re.compile(r"/stripe/webhook$"), 512 * 2**10),
    # Price lists; conversations; a provider's metadata, which form encoding makes 3 times as large.
    (re.compile(r"/admin/|/[^/]+/playground/stream$|/[^/]+/team/sso/"), 2 * 2**20),
)
"""Paths that take larger bodies, and their limit in bytes."""

_handler = ControlHandler()


def public(application: Application) -> Application:
    """Return the application without the internal API."""
    return _only(application, lambda path: not is_internal(path))


def internal(application: Application) -> Application:
    """Return only the internal API of the application."""
    return _only(application, is_internal)


def _only(application: Application, is_shown: Callable[[str], bool]) -> Application:
    async def respond(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if is_shown(scope["path"]):
            await application(scope, receive, send)
        else:
            await respond_plain(send, 404, b"Not found")

    return respond


def public_body_bytes_max(scope: dict[str, Any]) -> int:
    """Return the largest allowed body of a request to the public listener."""
    limits = (limit for path, limit in LARGER_BODIES if path.match(scope["path"]))
    return next(limits, PUBLIC_BODY_BYTES_MAX)


_health = Health(checks)
application = limit_bodies(
    health_middleware(public(_handler), _health, is_public=True), public_body_bytes_max
)
internal_application = limit_bodies(
    for_gateways(health_middleware(internal(_handler), _health, is_public=False)), body_bytes_max
)
