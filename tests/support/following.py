"""Followers in tests, beside which PostgreSQL's own analyzing may hold a transaction open."""

import time
from datetime import datetime

from django.db import connection

from billing.following.closing import close_days
from billing.following.follow import follow_all
from billing.following.sealing import seal_days

PATIENCE_SECONDS = 20.0

NEXT_XID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
# Whether followers can see everything that was begun before a transaction id was given.
IS_SEEN = "SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %s::xid8"


def wait_until_quiet() -> None:
    """Wait until no transaction that is at work now holds followers up; later ones may."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with connection.cursor() as cursor:
        cursor.execute(NEXT_XID)
        following = cursor.fetchone()[0]
        while time.monotonic() < deadline:
            cursor.execute(IS_SEEN, [following])
            if cursor.fetchone()[0]:
                return
            time.sleep(0.01)
    raise TimeoutError("a transaction stays open")


def catch_up(now: datetime) -> None:
    """Let every follower read all that is committed. The test has real transactions."""
    wait_until_quiet()
    while not follow_all(now=now):
        pass


def finish(now: datetime) -> list:
    """Close and seal whatever is over at `now`; return the days sealed."""
    close_days(now=now)
    catch_up(now)
    return seal_days(now=now)
