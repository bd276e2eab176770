"""Column types that Django does not know, used by every room of billing."""

from typing import Any

from django.db import models
from django.db.models import Func


class Xid8Field(models.Field):
    """A 64-bit PostgreSQL transaction id, as text in Python: it never wraps around."""

    def db_type(self, connection: Any) -> str:
        """Return the column's type."""
        return "xid8"


class RealField(models.FloatField):
    """A duration in four bytes; money is never one."""

    def db_type(self, connection: Any) -> str:
        """Return the column's type."""
        return "real"


class CurrentXid(Func):
    """The id of the transaction that inserts the row."""

    function = "pg_current_xact_id"
    template = "%(function)s()"
    output_field = Xid8Field()
