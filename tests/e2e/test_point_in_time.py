"""The database is recovered to a point before its newest usage, by the commands of the operators'
page: gateways serve meanwhile and send again what is missing, and each request is booked once."""

import shutil
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.fixtures.database_copy import (
    EVENTS,
    ROLLED_UP,
    SECONDS,
    DatabaseCopy,
    ask,
    assert_integrity,
    rebuild_after_resend,
    rows,
    system_user_of,
    value,
)
from tests.fixtures.stack import Stack
from tests.fixtures.waiting import wait_until
from tests.long.parts.installation import Page

pytestmark = [pytest.mark.e2e, pytest.mark.full]

CONTROL = ("control", "worker", "scheduler")
PAGE = Page("backup-and-restore")
WAL = "/archive/wal"
"""The page's folder of archived WAL, and the time it recovers to."""
TARGET = "2026-11-28 14:05:00+00"
ARCHIVE, RECOVERY = "archive_mode = on", "restore_command = 'cp /archive/wal/%f %p'"
"""The first lines of the page's settings."""
PAUSED = "SELECT pg_get_wal_replay_pause_state(), pg_last_xact_replay_timestamp()"
IDS = "SELECT event_id::text FROM metering_usage_event"
WAIVED = """
SELECT count(*) FROM metering_usage_event
WHERE is_waived AND organization_id = '{}' AND fault = 'foreign_caller'
"""
FAILED_ARCHIVALS = "SELECT failed_count FROM pg_stat_archiver"


def test_usage_after_the_point_comes_back_and_new_customers_do_not(
    replaceable_stack: Stack,
) -> None:
    archive = archive_continuously(replaceable_stack)
    sent = ask(replaceable_stack, 10)
    copy = DatabaseCopy(replaceable_stack, "base")
    sent += ask(replaceable_stack, 10)
    wait_until(replaceable_stack.journal_is_empty, seconds=SECONDS, what="all usage is shipped")
    assert value(replaceable_stack, EVENTS) == 20
    target = value(replaceable_stack, "SELECT clock_timestamp()::text")
    later = replaceable_stack.tenant("later@penstock.example")
    sent += ask(replaceable_stack, 5, api_key=later["api_key"])
    sent += ask(replaceable_stack, 50)
    wait_until(replaceable_stack.journal_is_empty, seconds=SECONDS, what="all usage is shipped")
    assert value(replaceable_stack, EVENTS) == 75

    for name in CONTROL:
        replaceable_stack.supervisor.stop_process(name)
    replaceable_stack.supervisor.stop_process("postgres")
    recover(copy, archive, target)
    sent += ask(replaceable_stack, 10)
    replaceable_stack.supervisor.start_process("postgres")
    for name in CONTROL:
        replaceable_stack.supervisor.start_process(name)

    rebuild_after_resend(replaceable_stack, event_count=85, missing_min=55)
    assert {row[0] for row in rows(replaceable_stack, IDS)} == set(sent)
    assert value(replaceable_stack, WAIVED.format(later["organization_id"])) == 5
    wait_until(
        lambda: status_of(replaceable_stack, later["api_key"]) == 401,
        seconds=SECONDS,
        what="a key that was created after the point is refused",
    )
    ask(replaceable_stack, 5)
    wait_until(
        lambda: value(replaceable_stack, ROLLED_UP) == 90, seconds=SECONDS, what="usage is summed"
    )
    assert_integrity(replaceable_stack)
    with psycopg.connect(replaceable_stack.superuser_url) as connection:
        assert connection.execute(FAILED_ARCHIVALS).fetchone() == (0,)


def archive_continuously(stack: Stack) -> Path:
    """Archive the stack's PostgreSQL as the page says; return the folder of its WAL."""
    archive = stack.home.data / "wal"
    archive.mkdir()
    with (stack.home.data / "postgres" / "postgresql.conf").open("a") as settings:
        settings.write(PAGE.settings(ARCHIVE, {WAL: str(archive)}))
    user = system_user_of(stack)
    if user:
        shutil.chown(archive, user)
    stack.supervisor.stop_process("postgres")
    stack.supervisor.start_process("postgres")
    wait_until(lambda: value(stack, EVENTS) == 0, seconds=SECONDS, what="PostgreSQL answers")
    return archive


def recover(copy: DatabaseCopy, archive: Path, target: str) -> None:
    """Recover a base backup to a time, look at what it has, and let it take the server's place."""
    with (copy.data / "postgresql.conf").open("a") as settings:
        settings.write(PAGE.settings(RECOVERY, {WAL: str(archive), TARGET: target}))
    signal = copy.data / "recovery.signal"
    signal.touch()
    copy.give_to_server(signal)
    copy.start()
    with psycopg.connect(copy.url, autocommit=True) as connection:
        wait_until(
            lambda: connection.execute(PAUSED).fetchall()[0][0] == "paused",
            seconds=SECONDS,
            what="the server has recovered to the time",
        )
        assert connection.execute(EVENTS).fetchone() == (20,)
    copy.take_over()


def status_of(stack: Stack, api_key: str) -> int:
    """Return how a gateway answers a key."""
    headers = {"authorization": f"Bearer {api_key}"}
    return httpx.get(f"{stack.api_base}/models", headers=headers).status_code
