"""The errors of the control plane's services, by what the caller can do about them.

ServiceError ─┬─ InvalidValue     400  send another value; `param` names the field
              ├─ NotPermitted     403  ask an owner for the role
              ├─ ObjectNotFound   404  also the answer to another tenant's id
              ├─ Conflict         409  the state does not allow it
              └─ TooManyRequests  429  wait and retry

Django's views treat ObjectNotFound as Http404 and NotPermitted as PermissionDenied.
"""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.utils import InterfaceError, InternalError, OperationalError
from django.http import Http404
from psycopg import errors as postgresql

CUT_OFF = (postgresql.TransactionTimeout, postgresql.IdleInTransactionSessionTimeout)


def is_database_unavailable(error: BaseException | None) -> bool:
    """Return whether PostgreSQL is unreachable or restarting, asks for a retry, or ended the
    transaction by a timeout: none of these is the caller's fault."""
    if isinstance(error, InternalError):
        return isinstance(error.__cause__, CUT_OFF)
    return isinstance(error, (OperationalError, InterfaceError))


class ServiceError(Exception):
    """A request is rejected; the message may be shown to the caller."""

    status = 400
    code = "invalid_value"
    retry_after_seconds: int | None = None
    """When the same request may succeed, if it may at all."""
    metadata: dict[str, Any] | None = None
    """Facts beside the message, for programs."""
    version: str | None = None
    """The present version of what was to be changed, if that is known."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.code


class InvalidValue(ServiceError):
    """A value is not allowed."""


class NotPermitted(ServiceError, PermissionDenied):
    """The actor's role does not allow it."""

    status = 403
    code = "permission_denied"


class ObjectNotFound(ServiceError, Http404):
    """No such object exists for this caller."""

    status = 404
    code = "not_found"


class Conflict(ServiceError):
    """The current state does not allow it."""

    status = 409
    code = "conflict"


class TooManyRequests(ServiceError):
    """The limit of requests in progress is reached."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, code: str, retry_after_seconds: int) -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds
