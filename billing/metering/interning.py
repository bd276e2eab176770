"""What events name, each combination once: callers, supplies and origins by a small number.

New combinations are made before the batch is booked, in transactions of their own, so that no
batch waits for another's. Who is called a caller is checked against control's rows, once.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.db import connection

from serving.contract.usage import UsageEvent

KNOWN_MAX = 500_000
FOREIGN_CALLER = "foreign_caller"

Names = tuple[str, ...]


class Interned(NamedTuple):
    """A combination's number, and what speaks against charging it."""

    id: int
    fault: str | None = None


class Table:
    """One table of combinations, with those that were committed when they were seen."""

    def __init__(self, name: str, columns: Sequence[str], *, fault: str = "") -> None:
        listed = ", ".join(columns)
        arrays = ", ".join(["%s::text[]"] * len(columns))
        matches = " AND ".join(f"row.{column} = wanted.{column}" for column in columns)
        wanted = f"unnest({arrays}) AS wanted ({listed})"
        select = ", ".join(f"row.{column}" for column in columns)
        kept, put, made = ("row.fault", ", fault", f", {fault}") if fault else ("NULL", "", "")
        self._select = (
            f"SELECT {select}, row.id, {kept} FROM {name} AS row JOIN {wanted} ON {matches}"  # noqa: S608 -- constants of this module
        )
        self._insert = f"INSERT INTO {name} ({listed}{put}) SELECT {listed}{made} FROM {wanted} ORDER BY {listed} ON CONFLICT DO NOTHING"  # noqa: S608, E501
        self._known: dict[Names, Interned] = {}

    def intern(self, wanted: Iterable[Names]) -> dict[Names, Interned]:
        """Return the numbers of combinations, making those that are missing."""
        combinations = set(wanted)
        found = {names: self._known[names] for names in combinations if names in self._known}
        missing = combinations - found.keys()
        if missing:
            rows = self._find(missing)
            unmade = missing - rows.keys()
            if unmade:
                self._run(self._insert, unmade)
                rows |= self._find(unmade)
            self._remember(rows)
            found |= rows
        return found

    def forget(self) -> None:
        """Forget what is known: the database is another one."""
        self._known.clear()

    def _find(self, wanted: Iterable[Names]) -> dict[Names, Interned]:
        rows = self._run(self._select, wanted)
        return {tuple(names): Interned(number, fault) for *names, number, fault in rows}

    def _run(self, statement: str, wanted: Iterable[Names]) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(
                statement, [list(column) for column in zip(*sorted(wanted), strict=True)]
            )
            return cursor.fetchall() if cursor.description else []

    def _remember(self, rows: dict[Names, Interned]) -> None:
        if connection.in_atomic_block:
            return
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        self._known.update(rows)


# A key of another project, or a project of another organization, is somebody's mistake.
FITS = f"""CASE WHEN EXISTS (
    SELECT FROM api_keys_api_key AS key WHERE key.id = wanted.key_id
        AND key.project_id = wanted.project_id AND key.organization_id = wanted.organization_id
) THEN NULL ELSE '{FOREIGN_CALLER}' END"""

CALLERS = Table("metering_caller", ("organization_id", "project_id", "key_id"), fault=FITS)
SUPPLIES = Table("metering_supply", ("model_id", "variant_id", "price_id", "endpoint", "tier"))
ORIGINS = Table("metering_origin", ("gateway_id", "deployment_id", "replica_id"))


def forget_interned() -> None:
    """Forget all combinations: the database is another one."""
    for table in (CALLERS, SUPPLIES, ORIGINS):
        table.forget()


def caller_of(event: UsageEvent) -> Names:
    """Return who asked."""
    return (event.organization_id, event.project_id, event.key_id)


def supply_of(event: UsageEvent) -> Names:
    """Return what was sold."""
    return (event.model_id, event.variant_id, event.price_id, event.endpoint, event.tier)


def origin_of(event: UsageEvent) -> Names:
    """Return where it was served."""
    return (event.gateway_id, event.deployment_id, event.replica_id or "")
