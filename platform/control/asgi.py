"""The ASGI applications of control: one of Django behind two listeners. The public one hides the
internal API, the internal one shows nothing else."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.core.asgi import get_asgi_application

from control.internal.callers import PREFIX

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


def public(application: Application) -> Application:
    """Return the application without its internal API."""
    return _only(application, lambda path: not path.startswith(PREFIX))


def internal(application: Application) -> Application:
    """Return the internal API of the application alone."""
    return _only(application, lambda path: path.startswith(PREFIX))


def _only(application: Application, is_shown: Callable[[str], bool]) -> Application:
    async def respond(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if is_shown(scope["path"]):
            await application(scope, receive, send)
        else:
            await _not_found(send)

    return respond


async def _not_found(send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"9")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": b"Not found"})


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control.settings")
_everything = get_asgi_application()
application = public(_everything)
internal_application = internal(_everything)
