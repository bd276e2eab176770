"""What models are made of: random ids with a prefix, and triggers for append-only tables."""

import secrets
import string

import pgtrigger

from serving.contract.key import BASE62

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
