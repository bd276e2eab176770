"""Days of usage events: one PostgreSQL partition per UTC day, bounded by UUIDv7 event ids."""

from collections.abc import Iterable
from datetime import UTC, date, datetime

from django.db import connection, migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState

from serving.contract.ids import id_floor

MAKE_DAY = "SELECT metering_make_day(%s)"


class CreatePartitionedModel(migrations.CreateModel):
    """CreateModel for a table partitioned by ranges of its primary key, `event_id`."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        """Create the table with `PARTITION BY` after its definition."""
        plain = schema_editor.sql_create_table
        schema_editor.sql_create_table = f"{plain} PARTITION BY RANGE (event_id)"
        super().database_forwards(app_label, schema_editor, from_state, to_state)
        schema_editor.sql_create_table = plain


def partition_name(day: date) -> str:
    """Return the name of the table that holds the events of one UTC day."""
    return f"metering_usage_event_{day:%Y%m%d}"


def first_id(day: date) -> str:
    """Return the smallest UUIDv7 of a UTC day."""
    return str(id_floor(datetime(day.year, day.month, day.day, tzinfo=UTC)))


def missing_days(days: Iterable[date]) -> list[date]:
    """Return those of `days` that have no partition yet, in order."""
    by_name = {partition_name(day): day for day in days}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relkind = 'r'",
            [list(by_name)],
        )
        present = {row[0] for row in cursor.fetchall()}
    return sorted(day for name, day in by_name.items() if name not in present)


def ensure_days(days: Iterable[date]) -> None:
    """Make the partitions of `days` that are missing; those that were archived stay away.

    Raises django.db.IntegrityError for an archived day.
    """
    for day in missing_days(days):
        with connection.cursor() as cursor:
            cursor.execute(MAKE_DAY, [day])
