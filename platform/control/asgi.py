"""The ASGI applications of control: one of Django behind two listeners. The public one hides the
internal API, the internal one shows nothing else; both tell of their health."""

import os
from collections.abc import Callable
from typing import Any

from django.core.asgi import get_asgi_application

from control.internal.callers import is_internal

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
_everything = get_asgi_application()

# Beneath Django's set-up, which they need.
from control.watch.health import (  # noqa: E402
    Application,
    Health,
    Receive,
    Send,
    answer,
    telling_health,
)
from control.watch.readiness import checks  # noqa: E402


def public(application: Application) -> Application:
    """Return the application without its internal API."""
    return _only(application, lambda path: not is_internal(path))


def internal(application: Application) -> Application:
    """Return the internal API of the application alone."""
    return _only(application, is_internal)


def _only(application: Application, is_shown: Callable[[str], bool]) -> Application:
    async def respond(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if is_shown(scope["path"]):
            await application(scope, receive, send)
        else:
            await answer(send, 404, b"Not found")

    return respond


_health = Health(checks)
application = telling_health(public(_everything), _health, is_public=True)
internal_application = telling_health(internal(_everything), _health, is_public=False)
