"""A standby takes the primary's place. Where it lacks nothing, the consumers of usage continue by
themselves; where it lacks usage, gateways send it again and an operator is told."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from control.feed.database_identity import LINEAGE
from infra.local.postgres import ADDRESS, DATABASE, SUPERUSER, Postgres
from infra.local.processes import home_role
from tests.fixtures.environment import free_port_base
from tests.fixtures.postgres import binary
from tests.fixtures.stack import Stack
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

LAG_EVENTS = 100
SECONDS = 120.0
REPLICATION = f"host replication all {ADDRESS}/32 scram-sha-256\n"
EVENTS = "SELECT count(*) FROM metering_usage_event"
ROLLED_UP = "SELECT coalesce(sum(request_count), 0)::bigint FROM following_hour_rollup"
LINEAGES = "SELECT DISTINCT lineage FROM following_cursor"
RESENT = "SELECT missing_count, finished_at IS NOT NULL, lineage FROM metering_resent_usage"
IS_CAUGHT_UP = "SELECT pg_wal_lsn_diff(%s, pg_last_wal_replay_lsn()) <= 0"
WATCH = "from billing.following.tasks import watch; watch()"
ALARMS = "SELECT count FROM metering_tally WHERE kind = 'database_replaced'"
MAKE_LATE = "UPDATE following_cursor SET followed_at = followed_at - interval '2 minutes'"


class Standby:
    """A standby of a stack's PostgreSQL, and its promotion to the primary's place."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._primary = stack.home.data / "postgres"
        role = home_role(stack.home, SUPERUSER)
        self._data = self._primary.with_name("standby")
        system_user = self._primary.owner() if os.geteuid() == 0 else None
        self.server = Postgres(
            self._data,
            free_port_base(),
            role.password,
            Path(binary("postgres")).parent,
            system_user,
        )
        self._copy()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._pg_ctl("start", "-l", str(self._data / "log"), "-o", self._options())
        wait_until(self.server.is_listening, seconds=SECONDS, what="the standby answers")

    def stop(self) -> None:
        """Stop it: from now on it lags."""
        self._pg_ctl("stop", "-m", "fast")

    def catch_up(self) -> None:
        """Wait until it has replayed all that the primary has written."""
        with psycopg.connect(self._stack.superuser_url) as primary:
            end = primary.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        with psycopg.connect(self._url, autocommit=True) as own:
            wait_until(
                lambda: own.execute(IS_CAUGHT_UP, end).fetchone() == (True,),
                seconds=SECONDS,
                what="the standby has replayed it",
            )

    def take_over(self) -> None:
        """Promote it, and run it in the primary's place."""
        with psycopg.connect(self._url, autocommit=True) as own:
            before = own.execute(LINEAGE).fetchone()
            own.execute("SELECT pg_promote()")
            assert own.execute(LINEAGE).fetchone() != before
        self.stop()
        self._primary.rename(self._primary.with_name("primary"))
        self._data.rename(self._primary)

    @property
    def _url(self) -> str:
        port = self.server.port
        return f"postgresql://{SUPERUSER}:{self.server.password}@{ADDRESS}:{port}/{DATABASE}"

    def _copy(self) -> None:
        with (self._primary / "pg_hba.conf").open("a") as rules:
            rules.write(REPLICATION)
        with psycopg.connect(self._stack.superuser_url, autocommit=True) as primary:
            primary.execute("SELECT pg_reload_conf()")
        command = [binary("pg_basebackup"), "-D", str(self._data), "-R", "-c", "fast"]
        subprocess.run(
            [*command, "-d", self._stack.superuser_url], check=True, capture_output=True, cwd=os.sep
        )
        if self.server.system_user:
            for path in (self._data, *self._data.rglob("*")):
                shutil.chown(path, self.server.system_user)

    def _options(self) -> str:
        return " ".join(self.server.command("hot_standby=on")[3:])

    def _pg_ctl(self, *arguments: str) -> None:
        command = [str(self.server.binaries / "pg_ctl"), "-D", str(self._data), "-w", *arguments]
        subprocess.run(
            command, check=True, user=self.server.system_user, cwd=os.sep,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture
def own_stack() -> Iterator[Stack]:
    stack = Stack(engine="simulated", prepared=True)
    stack.up()
    yield stack
    stack.remove()


def test_a_standby_without_lag_continues_by_itself(own_stack: Stack) -> None:
    ask(own_stack, 20)
    standby = Standby(own_stack)
    standby.start()
    ask(own_stack, 20)
    wait_until(own_stack.journal_is_empty, seconds=SECONDS, what="all usage is shipped")
    before = value(own_stack, LINEAGES)
    standby.catch_up()
    own_stack.supervisor.stop_process("postgres")
    standby.take_over()
    own_stack.supervisor.start_process("postgres")
    ask(own_stack, 5)
    wait_until(lambda: value(own_stack, ROLLED_UP) == 45, seconds=SECONDS, what="usage is summed")
    wait_until(
        lambda: value(own_stack, LINEAGES) not in (None, before),
        seconds=SECONDS,
        what="all consumers know the database",
    )
    assert value(own_stack, "SELECT sum(missing_count) FROM metering_resent_usage") == 0
    assert_integrity(own_stack)


def test_a_standby_that_lags_gets_all_usage_and_waits_for_an_operator(own_stack: Stack) -> None:
    ask(own_stack, 20)
    standby = Standby(own_stack)
    standby.start()
    standby.catch_up()
    standby.stop()
    ask(own_stack, LAG_EVENTS)
    wait_until(own_stack.journal_is_empty, seconds=SECONDS, what="all usage is shipped")
    assert value(own_stack, EVENTS) == 20 + LAG_EVENTS
    own_stack.supervisor.stop_process("postgres")
    standby.start()
    standby.take_over()
    own_stack.supervisor.start_process("postgres")
    wait_until(
        lambda: value(own_stack, EVENTS) == 20 + LAG_EVENTS,
        seconds=SECONDS,
        what="the gateway has sent again what was missing",
    )
    wait_until(
        lambda: [row[1] for row in rows(own_stack, RESENT)] == [True],
        seconds=SECONDS,
        what="the gateway has sent all",
    )
    ((missing, _, lineage),) = rows(own_stack, RESENT)
    assert missing >= LAG_EVENTS
    assert value(own_stack, LINEAGES) != lineage
    execute(own_stack, MAKE_LATE)
    told = own_stack.penstock("django", "shell", "--no-imports", "--command", WATCH)
    assert told.returncode == 0, told.stderr
    assert value(own_stack, ALARMS) >= 1
    rebuilt = own_stack.penstock("billing", "rebuild-usage")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert f"{missing:,} were missing" in rebuilt.stdout
    ask(own_stack, 5)
    wait_until(
        lambda: value(own_stack, ROLLED_UP) == 25 + LAG_EVENTS,
        seconds=SECONDS,
        what="usage is summed",
    )
    assert_integrity(own_stack)


def ask(stack: Stack, count: int) -> None:
    """Make requests that succeed; one that is refused while PostgreSQL starts is tried again."""
    url, headers = (
        f"{stack.api_base}/chat/completions",
        {"authorization": f"Bearer {stack.api_key}"},
    )
    body = {"model": stack.model, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
    with httpx.Client(headers=headers, timeout=60) as client:
        for _ in range(count):
            wait_until(
                lambda: client.post(url, json=body).status_code == 200,
                seconds=SECONDS,
                what="the request is answered",
            )


def rows(stack: Stack, statement: str) -> list[tuple]:
    with psycopg.connect(stack.database_url) as connection:
        return connection.execute(statement).fetchall()


def value(stack: Stack, statement: str):
    """Return the one value of a statement; None while PostgreSQL starts, or of several rows."""
    try:
        found = rows(stack, statement)
    except psycopg.OperationalError:
        return None
    return found[0][0] if len(found) == 1 else None


def execute(stack: Stack, statement: str) -> None:
    with psycopg.connect(stack.superuser_url) as connection:
        connection.execute(statement)


def assert_integrity(stack: Stack) -> None:
    checked = stack.penstock("billing", "check-integrity")
    assert checked.returncode == 0, checked.stdout + checked.stderr
