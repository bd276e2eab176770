"""How a follower reads on: a page of whole transactions, and a cursor that moves with its effect.

A transaction's id is given before it commits, so ids become visible out of order. Below the oldest
transaction still at work (`pg_snapshot_xmin`) nothing more can appear: that is as far as a page
goes. Page, effect and cursor are one transaction, so a crash leaves all of them or none.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.utils import timezone

from billing.metering.resent import lacks_nothing
from control.feed.database_identity import current_database_id

PAGE_EVENTS = 100_000
"""A page ends with the transaction that holds this event; a transaction has 500 at most."""

# Lock a follower's cursor; nothing where somebody else follows.
TAKE = """
SELECT xid::text, lineage, followed_at, pg_snapshot_xmin(pg_current_snapshot())::text,
    pg_snapshot_xmax(pg_current_snapshot())::text
FROM following_cursor WHERE name = %s FOR UPDATE SKIP LOCKED
"""
# The transaction of the n-th event after a cursor, by its number rather than its text; nothing
# where there are fewer.
END_OF_PAGE = """
SELECT event.ingested_xid::text AS xid FROM metering_usage_event AS event
WHERE event.ingested_xid >= %s::xid8 AND event.ingested_xid < %s::xid8
ORDER BY event.ingested_xid OFFSET %s LIMIT 1
"""
# By `head_at` no transaction from `head_xid` on had begun: once the cursor is there, all that was
# written by then is followed, and the next head is taken. An open writer keeps it below.
MOVE = """
UPDATE following_cursor SET xid = page.until_xid, lineage = %s,
    followed_at = CASE WHEN page.until_xid >= page.head_xid THEN page.at
        WHEN page.until_xid >= following_cursor.head_xid THEN head_at ELSE followed_at END,
    head_xid = CASE WHEN page.until_xid >= following_cursor.head_xid THEN page.head_xid
        ELSE following_cursor.head_xid END,
    head_at = CASE WHEN page.until_xid >= following_cursor.head_xid THEN page.at ELSE head_at END
FROM (SELECT %s::xid8 AS until_xid, %s::xid8 AS head_xid, %s::timestamptz AS at) AS page
WHERE name = %s
"""


class ForeignLineageError(RuntimeError):
    """The cursor belongs to another database: this one was restored or promoted, and may lack
    usage. It goes on once gateways prove that nothing is missing, or after `rebuild_usage`."""


@dataclass(frozen=True, slots=True)
class Page:
    """The transactions from `from_xid` up to, but not including, `until_xid`."""

    from_xid: str
    until_xid: str
    is_last: bool
    """Whether it reaches the end of what can be read; an open writer may hold back more."""
    head_xid: str
    """The first transaction id that was not given out yet when it was taken."""
    lineage: str
    """Of the database that it is read from."""

    @property
    def bounds(self) -> list[str]:
        """Both ends, as the parameters of a statement."""
        return [self.from_xid, self.until_xid]


def take_page(name: str, *, events: int = PAGE_EVENTS) -> Page | None:
    """Lock a follower's cursor until the transaction ends; return what it has not read yet.

    None where somebody else follows. Raises ForeignLineageError.
    """
    with connection.cursor() as cursor:
        cursor.execute(TAKE, [name])
        row = cursor.fetchone()
        if row is None:
            return None
        from_xid, known, followed_at, oldest, head = row
        lineage = current_database_id()
        if known not in ("", lineage) and not lacks_nothing(
            before=known, since=followed_at, now=timezone.now()
        ):
            raise ForeignLineageError(f"{name} followed database {known}; this is {lineage}")
        readable = str(max(int(oldest), int(from_xid)))
        cursor.execute(END_OF_PAGE, [from_xid, readable, events - 1])
        end = cursor.fetchone()
    if end is None:
        return Page(from_xid, readable, True, head, lineage)
    return Page(from_xid, str(int(end[0]) + 1), False, head, lineage)


def move(name: str, page: Page, *, now: datetime) -> None:
    """Put the cursor behind a page that was applied in this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(MOVE, [page.lineage, page.until_xid, page.head_xid, now, name])
