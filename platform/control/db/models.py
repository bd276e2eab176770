"""Parts of models: random ids with a prefix, triggers for append-only tables, and the
lookup of a row that may not exist."""

import secrets
import string
from typing import Any, TypeVar

import pgtrigger
from django.db.models import Model, QuerySet

from control.errors import ObjectNotFound
from serving.contract.key import BASE62

Row = TypeVar("Row", bound=Model)

RANDOM_CHARACTERS = 24
REFUSE_TRUNCATE = """
RAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
"""


def new_id(prefix: str) -> str:
    """Return a fresh id such as `org_fK4…`: 142 random bits, so that nobody guesses another's.

    They begin with a letter: the admin would take `_3F` in an address for a quoted `?`, so an id
    that somebody puts into one by hand might not be found.
    """
    first = secrets.choice(string.ascii_letters)
    rest = "".join(secrets.choice(BASE62) for _ in range(RANDOM_CHARACTERS - 1))
    return f"{prefix}_{first}{rest}"


def append_only(name: str) -> list[pgtrigger.Trigger]:
    """Return the triggers that refuse UPDATE, DELETE and TRUNCATE, even to the tables' owner."""
    stays = pgtrigger.Protect(name=f"{name}_stays", operation=pgtrigger.Update | pgtrigger.Delete)
    return [stays, no_truncate(name)]


def no_truncate(name: str) -> pgtrigger.Trigger:
    """Return the trigger that refuses TRUNCATE."""
    return pgtrigger.Trigger(
        name=f"{name}_all_stay",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func=REFUSE_TRUNCATE,
    )


ID_MAX = 64


def get_or_not_found(rows: QuerySet[Row], what: str, **lookup: Any) -> Row:
    """Return the row that a lookup finds, such as a "price book" by `id`. Raises ObjectNotFound."""
    found = rows.filter(**lookup).first()
    if found is None:
        raise ObjectNotFound(f"There is no such {what}.")
    return found
