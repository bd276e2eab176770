"""What becomes of a running platform when time passes: a month ends, days go by.

Its clock cannot be moved, so a month is closed as if it were over, and for days to go by what the
platform has dated moves back by as many: rows that nobody may change are changed as the superuser.
"""

from datetime import UTC, date, datetime

import psycopg
from psycopg import sql

from tests.support.stack import Stack

# The month ends: its days are closed, followed, posted and sealed, and it is invoiced.
CLOSE = """\
from datetime import UTC, datetime, timedelta
from billing.following.closing import close_days
from billing.following.follow import follow_all
from billing.following.sealing import seal_days
from billing.invoicing.periods import Period
from billing.invoicing.services.closing import close_month
from control.actor import system
first = datetime.now(UTC).date().replace(day=1)
end = datetime.combine((first + timedelta(days=32)).replace(day=1), datetime.min.time(), UTC)
now = end + timedelta(hours=2)
close_days(now=now)
while not follow_all(now=now):
    pass
seal_days(now=now)
made = close_month(period=Period(first), actor=system("tests"), now=now)
assert made.is_finished, made.failures
"""
# What a worker does every minute.
LOOK = """\
from django.utils import timezone
from billing.collection.services.looking import look
look(now=timezone.now())
"""
DATED = {
    "invoicing_invoice": ("issued_at", "due_on"),
    "collection_case": (
        "opened_at", "last_on", "not_before", "next_on", "next_at", "limited_at", "suspended_at",
    ),
    "collection_step": ("taken_at",),
    "outbox_message": ("created_at", "started_at", "due_at"),
}  # fmt: skip
"""What collection and the outbox compare with the clock."""
MOVED = sql.SQL("{column} = {column} - make_interval(days => {days})")
FIRST_DUE = "SELECT min(due_on) FROM invoicing_invoice"


def end_the_month(stack: Stack) -> None:
    """Close the running month."""
    _manage(stack, CLOSE)


def let_days_pass(stack: Stack, days: int) -> None:
    """Let days go by, and have the worker's look of the last one done."""
    with psycopg.connect(stack.superuser_url, autocommit=True) as root:
        root.execute("SET session_replication_role = replica")
        for table, columns in DATED.items():
            each = [MOVED.format(column=sql.Identifier(name), days=days) for name in columns]
            moved = sql.SQL(", ").join(each)
            root.execute(sql.SQL("UPDATE {} SET {}").format(sql.Identifier(table), moved))
    _manage(stack, LOOK)


def days_until_due(stack: Stack) -> int:
    """Return in how many days the first invoice is due."""
    with psycopg.connect(stack.superuser_url) as root:
        due: tuple[date] | None = root.execute(
            "SELECT min(due_on) FROM invoicing_invoice"
        ).fetchone()
    assert due is not None
    return (due[0] - datetime.now(UTC).date()).days


def _manage(stack: Stack, command: str) -> None:
    done = stack.penstock("manage", "shell", "--no-imports", "--command", command)
    assert done.returncode == 0, done.stderr
