"""SQL and Python read the same moment from an id, and so does PostgreSQL where it can."""

import uuid
from datetime import UTC, datetime

import pytest
from django.db import connection
from psycopg import sql

from serving.contract.ids import EPOCH, moment_of, uuid7

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
MOMENTS = [
    EPOCH,
    datetime(2025, 11, 28, 12, 0, 0, 1_000, UTC),
    datetime(2025, 11, 28, 12, 0, 0, 999_000, UTC),
    *(datetime(2026, 1 + n % 12, 1 + n % 28, n % 24, n, n, n * 1_000, UTC) for n in range(60)),
    datetime(2105, 12, 31, 23, 59, 59, 999_000, UTC),
]


def ids() -> list[str]:
    milliseconds = [round((moment - EPOCH).total_seconds() * 1_000) for moment in MOMENTS]
    return [uuid7(at_ms=each, random_bits=uuid.uuid4().int & (2**74 - 1)) for each in milliseconds]


def read_by(function: str, event_ids: list[str]) -> list[datetime]:
    query = sql.SQL("SELECT {}(id) FROM unnest(%s::uuid[]) WITH ORDINALITY AS t (id, n) ORDER BY n")
    with connection.cursor() as cursor:
        cursor.execute(query.format(sql.Identifier(function)), [event_ids])
        return [moment for (moment,) in cursor.fetchall()]


def test_the_moment_of_an_id_is_the_same_in_sql_and_python() -> None:
    made = ids()
    assert read_by("metering_received_at", made) == [moment_of(each) for each in made] == MOMENTS
    if connection.pg_version >= 180_000:  # 17 has the function too, and answers NULL
        assert read_by("uuid_extract_timestamp", made) == MOMENTS
