"""Publishes changes for the data plane, and compacts superseded ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.utils.module_loading import import_string

from control.feed.models import CompactionHorizon, PublishedChange
from serving.contract.codec import decode, encode
from serving.contract.feed import RECORD_OF_KIND

CHANNEL = "penstock_feed"
NUMBERING_LOCK = 0x70656E73746F636B
"""The advisory lock under which versions are assigned: "penstock" in ASCII."""
# The newest change of each record stays unless it is a deletion, which goes with all before it.
# The newest change of all stays in any case, since readers compare their version with it.
COMPACT = """
WITH cut AS (
    SELECT max(version) FILTER (WHERE created_at < %(before)s) AS version, max(version) AS newest
    FROM feed_published_change
), gone AS (
    DELETE FROM feed_published_change AS old USING cut
    WHERE old.version <= cut.version AND old.version < cut.newest
      AND (old.record IS NULL OR EXISTS (
          SELECT FROM feed_published_change AS newer
          WHERE newer.kind = old.kind AND newer.record_id = old.record_id
            AND newer.version > old.version))
    RETURNING old.version
)
SELECT count(*), coalesce(max(version), 0) FROM gone
"""


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """A record to publish; a `record` of None deletes it."""

    kind: str
    record_id: str
    record: msgspec.Struct | None


class FeedRef(NamedTuple):
    """A changed row of a kind whose record is built from rows of several packages, when the change
    is published."""

    kind: str
    id: str


def publish(changed: Iterable[FeedRecord | FeedRef]) -> None:
    """Publish changes with the surrounding transaction, in order, as its last step.

    The lock is held until the commit, so versions are committed in the order in which they were
    assigned; taking row locks after it could deadlock. Raises ContractError, and so undoes the
    transaction, when a record violates the contract.
    """
    records = _records(list(changed))
    rows = [
        PublishedChange(kind=item.kind, record_id=item.record_id, record=encode_record(item))
        for item in records
    ]
    if not rows:
        return
    with transaction.atomic(durable=False), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [NUMBERING_LOCK])
        PublishedChange.objects.bulk_create(rows)
        cursor.execute("SELECT pg_notify(%s, '')", [CHANNEL])


def _records(changed: list[FeedRecord | FeedRef]) -> list[FeedRecord]:
    """Return the given records, then those built for the references, kind by kind."""
    ids: dict[str, list[str]] = {}
    for each in changed:
        if isinstance(each, FeedRef):
            ids.setdefault(each.kind, []).append(each.id)
    given = [each for each in changed if isinstance(each, FeedRecord)]
    if not ids:
        return given
    # Named by a setting, since that module imports this one.
    build_records = import_string(settings.FEED_RECORDS)
    return given + [one for kind, of_kind in ids.items() for one in build_records(kind, of_kind)]


def encode_record(item: FeedRecord) -> str | None:
    """Return the record as JSON that readers accept. Raises ContractError."""
    if item.record is None:
        return None
    data = encode(item.record)
    decode(data, RECORD_OF_KIND[item.kind])
    return data.decode()


@transaction.atomic
def compact(*, before: datetime) -> int:
    """Remove changes older than `before` that a snapshot does not need; return their number.

    Readers behind the last removed change get a snapshot.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [NUMBERING_LOCK])
        cursor.execute(COMPACT, {"before": before})
        removed_count, version = cursor.fetchone()
    horizon, _ = CompactionHorizon.objects.get_or_create(id=1)
    horizon.version = max(horizon.version, version)
    horizon.save(update_fields=["version"])
    return int(removed_count)
