"""`penstock upgrade`: migrate, grant and verify the application's privileges, and
republish outdated feed records of organizations, projects and keys: those that older code published
in another form, or never, so that the data plane has no record of the old form."""

from collections.abc import Iterable

from django.apps import apps
from django.core.management import BaseCommand, CommandError, call_command
from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from psycopg.errors import LockNotAvailable

from control.api_keys.models import ApiKey
from control.api_keys.selectors import locked_live_keys
from control.db.privileges import (
    declared_privileges,
    grant,
    missing_timeouts,
    privilege_violations,
    set_timeouts,
)
from control.feed.selectors import records_of
from control.feed.services import FeedRecord, encode_record, publish
from control.feed_records import BUILDERS, build_records
from control.organizations.models import Organization, Project
from control.organizations.selectors import locked_organization, locked_projects
from control.required_versions import unsupported_versions

LOCK_SECONDS_MAX = 10
PAGE = 500
"""The number of organizations whose records are read at once."""
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


def republish_outdated() -> int:
    """Publish each organization, project and key whose feed record differs from its row.

    Returns the number of records. It is safe while services run: records that differ are compared
    again under the locks that every change of the rows takes.
    """
    published = records_of(BUILDERS)
    ids = list(Organization.objects.order_by("id").values_list("id", flat=True))
    count = 0
    for start in range(0, len(ids), PAGE):
        for organization_id in _outdated(ids[start : start + PAGE], published):
            count += _republish(organization_id)
    return count


def _outdated(ids: list[str], published: dict[tuple[str, str], str]) -> list[str]:
    """Return those of the organizations that have an outdated record."""
    projects = Project.objects.filter(organization_id__in=ids)
    keys = ApiKey.objects.filter(organization_id__in=ids, revoked_at__isnull=True)
    owners = {
        "organization": {each: each for each in ids},
        "project": dict(projects.values_list("id", "organization_id")),
        "api_key": dict(keys.values_list("id", "organization_id")),
    }
    records = [each for kind, owned in owners.items() for each in build_records(kind, owned)]
    return sorted({owners[each.kind][each.record_id] for each in _differing(records, published)})


@transaction.atomic
def _republish(organization_id: str) -> int:
    organization = locked_organization(organization_id)
    locked = {
        "organization": [organization.id],
        "project": [each.id for each in locked_projects(organization)],
        "api_key": [each.id for each in locked_live_keys(organization)],
    }
    records = [each for kind, ids in locked.items() for each in build_records(kind, ids)]
    differing = _differing(records, records_of(BUILDERS, [each.record_id for each in records]))
    publish(differing)
    return len(differing)


def _differing(
    records: Iterable[FeedRecord], published: dict[tuple[str, str], str]
) -> list[FeedRecord]:
    return [
        each
        for each in records
        if encode_record(each) != published.get((each.kind, each.record_id))
    ]
