"""What a test has committed is undone for the next: tests/fixtures/database.py says how."""

import psycopg
import pytest
from psycopg import sql

from tests.fixtures import database
from tests.fixtures.usage import make_customer

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
TOUCHED = (
    "auth_permission",
    "collection_settings",
    "django_content_type",
    "organizations_organization",
)


def rows(connection: psycopg.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of the tables that the test touches."""
    all_of = {table: sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)) for table in TOUCHED}
    return {
        table: sorted(connection.execute(query).fetchall(), key=str)
        for table, query in all_of.items()
    }


def test_rows_made_changed_and_deleted_are_as_they_were(
    superuser_connection: psycopg.Connection,
) -> None:
    pristine = rows(superuser_connection)
    for change in (
        "INSERT INTO auth_permission SELECT -1, 'new', content_type_id, 'new'"
        " FROM auth_permission LIMIT 1",
        "UPDATE auth_permission SET name = 'changed' WHERE id > 0",
        "DELETE FROM collection_settings",
        "DELETE FROM django_content_type WHERE model = 'organization'",
    ):
        superuser_connection.execute(change)
        assert rows(superuser_connection) != pristine
        database.restore()
        assert rows(superuser_connection) == pristine


def test_a_table_that_was_empty_is_empty_again(superuser_connection: psycopg.Connection) -> None:
    make_customer()
    assert rows(superuser_connection)["organizations_organization"]
    database.restore()
    assert not rows(superuser_connection)["organizations_organization"]
