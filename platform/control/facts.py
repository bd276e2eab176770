"""Triggers that make rows facts: written once, never changed, never thrown away."""

import pgtrigger

REFUSE_TRUNCATE = """
RAISE EXCEPTION 'TRUNCATE of % is refused: it holds facts', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
"""


def facts(name: str) -> list[pgtrigger.Trigger]:
    """Return the triggers that refuse UPDATE, DELETE and TRUNCATE, even to the tables' owner."""
    stays = pgtrigger.Protect(name=f"{name}_stays", operation=pgtrigger.Update | pgtrigger.Delete)
    return [stays, all_stay(name)]


def all_stay(name: str) -> pgtrigger.Trigger:
    """Return the trigger that refuses TRUNCATE."""
    return pgtrigger.Trigger(
        name=f"{name}_all_stay",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func=REFUSE_TRUNCATE,
    )
