"""When keys were last used: a by-product of usage, written where usage is booked."""

from collections.abc import Mapping
from datetime import datetime

from django.db import connection

# Locked in one order first, since an UPDATE takes its rows in any.
TOUCH = """
WITH used AS (
    SELECT key.id, event.used_at FROM keys_api_key AS key
    JOIN unnest(%s::text[], %s::timestamptz[]) AS event (key_id, used_at) ON key.id = event.key_id
    WHERE key.last_used_at IS NULL OR key.last_used_at < event.used_at
    ORDER BY key.id FOR NO KEY UPDATE OF key
)
UPDATE keys_api_key AS key SET last_used_at = used.used_at FROM used WHERE key.id = used.id
"""


def touch_keys(last_used_at: Mapping[str, datetime]) -> None:
    """Move the `last_used_at` of keys forward; unknown keys are left out."""
    with connection.cursor() as cursor:
        cursor.execute(TOUCH, [list(last_used_at.keys()), list(last_used_at.values())])
