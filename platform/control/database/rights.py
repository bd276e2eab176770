"""What the application may do with each table, as the apps declare it.

An AppConfig may name tables in `facts: tuple[str, ...]` (written once) and in
`moved_by_functions: tuple[str, ...]` (changed by functions of the owner only).
"""

from collections.abc import Iterable

from django.apps import AppConfig

FREELY = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
READ = frozenset({"SELECT"})
ADD = frozenset({"SELECT", "INSERT"})


def declared_rights(apps: Iterable[AppConfig]) -> dict[str, frozenset[str]]:
    """Return the rights in each table that an app declares; all others may be written freely.

    A table that is both, a fact and moved by functions, may be added to.
    """
    apps = list(apps)
    moved = {table: READ for app in apps for table in getattr(app, "moved_by_functions", ())}
    return moved | {table: ADD for app in apps for table in getattr(app, "facts", ())}
