"""What control refuses, split by what the caller can do about it.

Refusal ─┬─ Invalid       400  send something else; `param` names the field
         ├─ NotPermitted  403  ask an owner for the role
         ├─ NotFound      404  also what another tenant's id gets
         ├─ Conflict      409  the state does not allow it (any more)
         └─ TooMany       429  wait, and try again

Django's own views know NotFound as Http404 and NotPermitted as PermissionDenied.
"""

from django.core.exceptions import PermissionDenied
from django.db.utils import InterfaceError, InternalError, OperationalError
from django.http import Http404
from psycopg import errors as postgresql

CUT_OFF = (postgresql.TransactionTimeout, postgresql.IdleInTransactionSessionTimeout)


def is_database_away(error: BaseException | None) -> bool:
    """Tell whether PostgreSQL is unreachable, restarting, asks to try again, or cut us off: nobody
    who calls did wrong."""
    if isinstance(error, InternalError):
        return isinstance(error.__cause__, CUT_OFF)
    return isinstance(error, (OperationalError, InterfaceError))


class Refusal(Exception):
    """A wish that is not carried out, in words that may be shown to who wished it."""

    status = 400
    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.code


class Invalid(Refusal):
    """A value is out of bounds."""


class NotPermitted(Refusal, PermissionDenied):
    """The role does not allow it."""

    status = 403
    code = "permission_denied"


class NotFound(Refusal, Http404):
    """There is no such thing for this caller."""

    status = 404
    code = "not_found"


class Conflict(Refusal):
    """The state of things does not allow it."""

    status = 409
    code = "conflict"


class TooMany(Refusal):
    """There are as many of them under way as there may be."""

    status = 429
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, code: str, retry_after_seconds: int) -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds
