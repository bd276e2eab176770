"""The follower `keys`: when each API key was last used."""

from django.db import connection

from billing.following.cursor import Page
from control.api_keys.services import record_key_usage

LAST_USED = """
/* The newest use of each key in a page. */
SELECT caller.key_id, max(used.at) FROM (
    SELECT caller_id, max(metering_received_at(event_id)) AS at FROM metering_usage_event
    WHERE ingested_xid >= %s::xid8 AND ingested_xid < %s::xid8 GROUP BY caller_id
) AS used JOIN metering_caller AS caller ON caller.id = used.caller_id
GROUP BY caller.key_id
"""


def follow_keys(page: Page) -> None:
    """Note when the keys of a page were last used."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL jit = off")
        cursor.execute(LAST_USED, page.bounds)
        used_at = dict(cursor.fetchall())
    if used_at:
        record_key_usage(used_at)
