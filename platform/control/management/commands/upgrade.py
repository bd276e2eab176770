"""`penstock upgrade`: migrate, grant and verify the application's privileges, and
republish outdated feed records of organizations, projects and keys."""

from django.apps import apps
from django.core.management import BaseCommand, CommandError, call_command
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from psycopg.errors import LockNotAvailable

from control.db.privileges import (
    declared_privileges,
    grant,
    missing_timeouts,
    privilege_violations,
    set_timeouts,
)
from control.management.republishing import republish_outdated
from control.required_versions import unsupported_versions

LOCK_SECONDS_MAX = 10
LOCKED = (
    f"A table stayed locked for {LOCK_SECONDS_MAX} s. The migrations before it are applied. Wait"
    " for the long transaction to end, or end it, and run `penstock upgrade` again."
)
OTHER_VERSION = (
    "This database was made by another development version of Penstock and can't be upgraded: it"
    " has migrations that this version doesn't have, such as {}. Delete a local platform's data"
    " with `penstock reset`, or name an empty database in DATABASE_URL."
)


class Command(BaseCommand):
    """Upgrades the database; it may run again, and while services run."""

    help = (
        "Migrate as the owner, grant the services their rights, and verify that they have no more."
    )
    requires_system_checks = []

    def handle(self, **options: object) -> None:
        """Upgrade the database.

        Raises CommandError for a Python or server that is too old, a database of another
        development version, a table that stays locked, or wrong privileges.
        """
        for variable, words in unsupported_versions("owner"):
            raise CommandError(f"{variable} {words}")
        owner, app = connections["owner"], connections["default"]
        _check_history(owner)
        _migrate(owner)
        name = _role(app)
        if name == _role(owner):
            self.stdout.write("Migrated. One role for everything: no rights to grant or verify.")
        else:
            self._grant(owner, app, name)
        if count := republish_outdated():
            self.stdout.write(f"{count} records of the change feed published anew.")

    def _grant(self, owner: BaseDatabaseWrapper, app: BaseDatabaseWrapper, name: str) -> None:
        declared = declared_privileges(apps.get_app_configs())
        with transaction.atomic(using=owner.alias), owner.cursor() as cursor:
            grant(cursor, app=name, declared=declared)
        with app.cursor() as cursor:
            set_timeouts(cursor)
        app.close()
        app.close_pool()  # type: ignore[attr-defined]  # django-stubs lack pools
        with owner.cursor() as cursor, app.cursor() as new_session:
            violations = privilege_violations(cursor, app=name, declared=declared)
            violations += missing_timeouts(new_session)
        if violations:
            raise CommandError("\n".join(violations))
        self.stdout.write(f"Migrated; {name} has its rights and no more.")


def _migrate(owner: BaseDatabaseWrapper) -> None:
    """Apply the migrations. One that waits for a lock makes all others wait behind it, services
    too, so it gives up soon."""
    with owner.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{LOCK_SECONDS_MAX}s"])
    try:
        call_command("migrate", database=owner.alias, interactive=False, verbosity=0)
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise CommandError(LOCKED) from error
        raise
    with owner.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


def _check_history(owner: BaseDatabaseWrapper) -> None:
    loader = MigrationLoader(owner)
    known = loader.disk_migrations.keys() | {
        replaced for migration in loader.disk_migrations.values() for replaced in migration.replaces
    }
    unknown = sorted(loader.applied_migrations.keys() - known)
    if unknown:
        raise CommandError(OTHER_VERSION.format(".".join(unknown[0])))


def _role(connection: BaseDatabaseWrapper) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user::text")
        name: str = cursor.fetchone()[0]
        return name
