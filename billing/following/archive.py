"""Archiving: sealed days that ingest can no longer reach move to files, proved against their seals.

A file holds what is accounted on a day. A partition holds what was received on one, and goes when
all of it lies in files. Every step may be the last before a crash: the next run goes on from what
the catalog and the files say.
"""

import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, connections, transaction
from django.utils import timezone
from pyarrow import ArrowInvalid

from billing.following import filed, parquet
from billing.following.errors import NotAtHandError
from billing.following.models import Seal
from billing.following.sealing import PATIENTLY, RECORD
from billing.following.span import span, usage_of_span
from billing.metering.batch import AGE_MAX
from billing.metering.models import (
    Caller,
    Day,
    Origin,
    Supply,
    UsageCorrection,
    UsageEvent,
)
from billing.metering.partitions import partition_name
from control.alarms.count import OPERATOR, raise_alarms
from serving.contract.ids import id_floor

logger = structlog.get_logger(__name__)

OWNER = "owner"
REACH_DAYS = AGE_MAX.days + 1
"""How long after it was received usage may be accounted."""

READ_DAY = f"""
/* The records accounted on a day, by id. */
SELECT {", ".join("event_id::text" if name == "event_id" else name for name in RECORD)}
FROM {usage_of_span("following_record")} ORDER BY usage.event_id, usage.kind
"""  # noqa: S608 -- constants of this room
STATE = """
/* Whether a table is there, is a partition, and was about to be detached. */
SELECT part.oid IS NOT NULL, child.inhrelid IS NOT NULL, coalesce(child.inhdetachpending, false)
FROM (SELECT to_regclass(%s)::oid AS oid) AS part
LEFT JOIN pg_inherits AS child ON child.inhrelid = part.oid
"""
NOT_FILED = "SELECT count(*) FROM {part} WHERE accounted_on > %s"
DETACH = "ALTER TABLE metering_usage_event DETACH PARTITION {part} {how}"


class ArchiveError(RuntimeError):
    """A day cannot be archived as it is; nothing of it was dropped."""


def archive(*, before: date, folder: Path, now: datetime) -> Iterator[str]:
    """Archive the sealed days before a date and drop what lies in files; yield what was done.

    Raises ArchiveError for a date within ingest's reach, and for a file that is not what was
    sealed.
    """
    newest = (now - AGE_MAX).date()
    if before > newest:
        raise ArchiveError(f"{before} is within ingest's reach; wanted {newest} or before")
    folder.mkdir(parents=True, exist_ok=True)
    for day in to_archive(before):
        yield f"{day}: {archive_day(day, folder=folder, now=now)} records archived"
    for day in to_drop(before):
        drop_day(day, now=now)
        yield f"{day}: partition dropped"


def to_archive(before: date) -> list[date]:
    """Return the sealed days before a date that are not archived yet, in order."""
    sealed = Day.objects.filter(day__lt=before, sealed_at__isnull=False, archived_at__isnull=True)
    return list(sealed.order_by("day").values_list("day", flat=True))


def to_drop(before: date) -> list[date]:
    """Return the days before a date whose partition is there, all of it in files."""
    filed = Day.objects.filter(day__lt=before, archived_at__isnull=False).order_by("day")
    days = list(filed.values_list("day", flat=True))
    return [day for day in days if _state(day)[0] and not _not_filed(day, days[-1])]


def archive_day(day: date, *, folder: Path, now: datetime) -> int:
    """Write a sealed day to its file and prove the file against the seals; count its records."""
    target = folder / f"usage-{day}.parquet"
    draft = target.with_suffix(".draft")
    count = parquet.write(draft, _records(day))
    _prove(draft, day)
    parquet.put_in_place(draft, target)
    Day.objects.filter(day=day).update(archive_path=target.name, archived_at=now)
    return count


def drop_day(day: date, *, now: datetime) -> None:
    """Drop the partition of a day: ingest makes it no more, then it is detached, then it goes."""
    Day.objects.filter(day=day, dropped_at__isnull=True).update(dropped_at=now)
    part = partition_name(day)
    _, is_attached, is_pending = _state(day)
    with connections[OWNER].cursor() as cursor:
        if is_attached:
            how = "FINALIZE" if is_pending else "CONCURRENTLY"
            cursor.execute(DETACH.format(part=part, how=how))
        last = Day.objects.filter(archived_at__isnull=False).order_by("-day").first()
        if last is None or _not_filed(day, last.day):
            raise ArchiveError(f"{part} holds rows that no file has; it is detached and stays")
        cursor.execute(f"DROP TABLE {part}")


def require_at_hand(start: datetime, end: datetime) -> None:
    """Raise NotAtHandError where a file is missing that requests received in [start, end) may be
    in: an answer that has begun cannot say so any more."""
    for day, path in _filed(dropped_days(start, end)):
        if path is None or not path.is_file():
            raise _not_at_hand(day)


def find_event(event_id: uuid.UUID, organization_id: str) -> UsageEvent | UsageCorrection | None:
    """Return a request of an archived day as it really was; None where no file has it."""
    mine = UsageCorrection.objects.select_related("caller", "supply", "origin")
    corrected = mine.filter(event_id=event_id, organization_id=organization_id).first()
    return corrected or _find_filed(event_id, organization_id)


def filed_pages(
    organization_id: str, start: datetime, end: datetime, *, page: int
) -> Iterator[list[UsageEvent]]:
    """Yield an organization's requests received in [start, end) on days that are in files alone, as
    first reported, by the day they are accounted on and then by id, a page at a time."""
    dropped = set(dropped_days(start, end))
    bounds = id_floor(start), id_floor(end)
    for day, path in _filed(dropped):
        with _at_hand(day, path) as file:
            for records in parquet.select(file, organization_id, *bounds, page=page):
                events = [_event(record, day) for record in records]
                if found := [one for one in events if one.received_at.date() in dropped]:
                    yield found


def dropped_days(start: datetime, end: datetime) -> list[date]:
    """Return the days from one moment to another whose usage is in files alone."""
    gone = Day.objects.filter(day__range=(start.date(), end.date()), dropped_at__isnull=False)
    return list(gone.values_list("day", flat=True))


def _find_filed(event_id: uuid.UUID, organization_id: str) -> UsageEvent | None:
    received = UsageEvent(event_id=event_id).received_at.date()
    for day, path in _filed([received]):
        with _at_hand(day, path) as file:
            found = parquet.find(file, event_id, organization_id)
        if found:
            return _event(found, day)
    return None


def _filed(received: Collection[date]) -> list[tuple[date, Path | None]]:
    """Return the archived days that may hold what was received on some days, each with its file;
    None for one where there is no folder of archives here."""
    if not received:
        return []
    folder = settings.CONFIG.archive_dir
    reach = (min(received), max(received) + timedelta(days=REACH_DAYS))
    filed = Day.objects.filter(day__range=reach, archived_at__isnull=False).order_by("day")
    return [(day.day, folder / day.archive_path if folder else None) for day in filed]


@contextmanager
def _at_hand(day: date, path: Path | None) -> Iterator[Path]:
    """Read the file of a day. Raises NotAtHandError for one that is gone or no file of ours."""
    if path is None:
        raise _not_at_hand(day)
    try:
        yield path
    except (OSError, ArrowInvalid) as error:
        raise _not_at_hand(day) from error


def _not_at_hand(day: date) -> NotAtHandError:
    """Tell the operator, too."""
    logger.error("archive_not_at_hand", day=str(day))
    raise_alarms({(OPERATOR, "archive_not_at_hand"): 1}, now=timezone.now())
    return NotAtHandError(day)


def _event(record: dict[str, Any], day: date) -> UsageEvent:
    """Return a record as the event it was; it is no row of the database."""
    del record["kind"]
    named = {
        name: model(**{column: record.pop(column) for column in columns})
        for name, model, columns in (
            ("supply", Supply, ("model_id", "variant_id", "price_id", "endpoint", "tier")),
            ("origin", Origin, ("gateway_id", "deployment_id", "replica_id")),
        )
    }
    names = {column: record.pop(column) for column in ("project_id", "key_id")}
    caller = Caller(organization_id=record["organization_id"], **names)
    record["event_id"] = uuid.UUID(record["event_id"])
    return UsageEvent(**record, **named, caller=caller, accounted_on=day, ingested_xid=None)


def _records(day: date) -> Iterator[list[tuple[Any, ...]]]:
    with transaction.atomic():
        parameters = span(day, day).parameters
        with connection.cursor() as cursor:
            cursor.execute(PATIENTLY)
        with connection.connection.cursor("records_of_day") as stream:
            stream.execute(READ_DAY, parameters)
            while rows := stream.fetchmany(parquet.ROW_GROUP):
                yield rows


def _prove(path: Path, day: date) -> None:
    """Compare a file with the day's seals; it writes nothing, so it keeps no follower waiting."""
    seals = Seal.objects.filter(day=day).values_list("organization_id", "rows_digest")
    sealed = {organization_id: bytes(digest) for organization_id, digest in seals}
    found = filed.digests(parquet.read(path))
    wrong = sorted(one for one in sealed | found if sealed.get(one) != found.get(one))
    if wrong:
        raise ArchiveError(f"{path} is not what was sealed for {', '.join(wrong[:3])}")


def _state(day: date) -> tuple[bool, bool, bool]:
    with connections[OWNER].cursor() as cursor:
        cursor.execute(STATE, [partition_name(day)])
        state: tuple[bool, bool, bool] = cursor.fetchone()
    return state


def _not_filed(day: date, filed_through: date) -> int:
    with connections[OWNER].cursor() as cursor:
        cursor.execute(NOT_FILED.format(part=partition_name(day)), [filed_through])
        count: int = cursor.fetchone()[0]
    return count
