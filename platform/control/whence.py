"""Where a deed comes from: the request that is at work, known to all beneath it without being
passed from call to call. A task has the id of the request that asked for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from structlog.contextvars import bind_contextvars, unbind_contextvars


@dataclass(frozen=True, slots=True)
class Whence:
    """The client's network address, where one is known, and our id of its request."""

    address: str | None = None
    request_id: str = ""


NOWHERE = Whence()
_whence: ContextVar[Whence] = ContextVar("whence", default=NOWHERE)


def whence() -> Whence:
    """Return where what happens now comes from; without a request, from nowhere."""
    return _whence.get()


@contextmanager
def coming_from(found: Whence) -> Iterator[None]:
    """Let what happens within come from there."""
    token = _whence.set(found)
    try:
        yield
    finally:
        _whence.reset(token)


CONCERNS = ("organization_id", "user_id", "key_id")


def concerning(**ids: str | None) -> None:
    """Let each log line of this request from now on say whom it concerns: by id, never by name."""
    bind_contextvars(**{name: each for name, each in ids.items() if each and name in CONCERNS})


def concerning_nobody() -> None:
    """End that with the request."""
    unbind_contextvars(*CONCERNS)
