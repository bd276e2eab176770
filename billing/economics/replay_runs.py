"""Replays as operators ask for them: begun at once, done a day at a time by a worker.

A day is read without a lock and without writing; its sums and the step to the next day are one
transaction, so that a worker that dies repeats a day and counts none twice.
"""

from collections.abc import Sequence
from dataclasses import astuple
from datetime import UTC, date, datetime, timedelta

import msgspec
import structlog
from django.db import DatabaseError, DataError, OperationalError, connection, transaction

from billing.economics.models import ReplayRun
from billing.economics.replay import COLUMNS, KEYS, SUMS, Band, Replayed, bands_of, replay_day
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.permissions import Actor, Permission, require_operator
from control.pricing import selectors as prices
from control.pricing.models import PriceBook
from control.pricing.services import check_complete

DAYS_MAX = 92
"""A quarter: usage is archived after about as long."""
BUSY = 2_026_112_105
"""The advisory lock of the one replay at a time, so that they leave the database to others."""

# Add a day's sums to those of the days before.
ADD = f"""
INSERT INTO economics_replay_line AS line (run_id, {", ".join(COLUMNS)})
SELECT %s, day.* FROM unnest(
    {", ".join(["%s::text[]"] * len(KEYS))}, {", ".join(["%s::bigint[]"] * len(SUMS))}
) AS day ({", ".join(COLUMNS)})
ON CONFLICT (run_id, {", ".join(KEYS)})
DO UPDATE SET {", ".join(f"{name} = line.{name} + excluded.{name}" for name in SUMS)}
"""  # noqa: S608 -- constants of this module

logger = structlog.get_logger(__name__)


@transaction.atomic
def start_replay(
    *, actor: Actor, book: PriceBook, first_day: date, last_day: date, now: datetime
) -> ReplayRun:
    """Ask for a draft's replay over UTC days, both included; nothing of the draft changes.

    Raises Conflict for a book that is no draft, InvalidValue for one that is not whole, and for
    days to come or more than DAYS_MAX.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    book = prices.locked_book(book.id)
    if book.is_published:
        raise Conflict(f"{book.name} is published: only drafts are replayed.")
    drafted = list(prices.prices(book))
    check_complete(drafted)
    _check_days(first_day, last_day, now)
    run = ReplayRun.objects.create(
        book=book,
        organization_id=book.organization_id,
        prices=msgspec.to_builtins(bands_of(drafted)),
        first_day=first_day,
        last_day=last_day,
        next_day=first_day,
        requested_by=actor.name,
        requested_at=now,
    )
    audit.record(
        actor=actor,
        action="price_book.replay",
        target_kind="price_book",
        target_id=book.id,
        target_name=book.name,
        details={"first_day": str(first_day), "last_day": str(last_day)},
    )
    return run


@transaction.atomic
def cancel_replay(*, actor: Actor, run: ReplayRun, now: datetime) -> ReplayRun:
    """End a replay before its last day; what was done stays, and a day under way is not added.

    Raises Conflict for one that has ended already.
    """
    require_operator(actor, Permission.FINANCE_WRITE)
    run = ReplayRun.objects.select_for_update(of=("self",)).select_related("book").get(id=run.id)
    if not run.is_unfinished:
        raise Conflict(f"The replay is already {run.state}.")
    run.cancelled_at = now
    run.save(update_fields=["cancelled_at"])
    audit.record(
        actor=actor,
        action="price_book.replay_cancel",
        target_kind="price_book",
        target_id=run.book_id,
        target_name=run.book.name,
        details={"done_days": run.done_day_count, "days": run.day_count},
    )
    return run


def last_month(now: datetime) -> tuple[date, date]:
    """Return the first and the last day of the UTC month before."""
    last = now.astimezone(UTC).date().replace(day=1) - timedelta(days=1)
    return last.replace(day=1), last


def has_changed(run: ReplayRun) -> bool:
    """Tell whether the draft is not what was replayed any more."""
    kept = msgspec.convert(run.prices, list[Band])
    now = bands_of(prices.prices(run.book))
    return now != kept or run.book.organization_id != run.organization_id


def advance(*, now: datetime) -> bool:
    """Replay the next day of the oldest run that is not finished; return whether there was one.

    Where another worker is at it, there is nothing to do here. What the database refuses ends the
    run as failed, with the reason in words.
    """
    run = ReplayRun.objects.unfinished().first()
    if run is None:
        return False
    try:
        return _replay_next(run, now)
    except (DataError, OperationalError) as error:
        if not (words := _words(error)):
            raise
        logger.error("replay_failed", run_id=run.id, day=str(run.next_day), error=str(error))
        ReplayRun.objects.unfinished().filter(id=run.id).update(failure=f"{run.next_day}: {words}")
        return True


@transaction.atomic
def _replay_next(run: ReplayRun, now: datetime) -> bool:
    """The advisory lock lasts as long as this transaction, which has no id until it writes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [BUSY])
        if not cursor.fetchone()[0]:
            return False
    bands = msgspec.convert(run.prices, list[Band])
    found = replay_day(run.next_day, bands, organization_id=run.organization_id)
    _keep(run, found, now)
    return True


def _keep(run: ReplayRun, found: Sequence[Replayed] | None, now: datetime) -> None:
    """Add a day's sums and step to the next day, unless somebody else has done so."""
    locked = ReplayRun.objects.unfinished().select_for_update().filter(id=run.id).first()
    if locked is None or locked.next_day != run.next_day:
        return
    if found is None:
        locked.gone_days.append(run.next_day)
    elif found:
        columns = [list(column) for column in zip(*map(astuple, found), strict=True)]
        with connection.cursor() as cursor:
            cursor.execute(ADD, [run.id, *columns])
    locked.started_at = locked.started_at or now
    locked.next_day += timedelta(days=1)
    locked.finished_at = now if locked.next_day > locked.last_day else None
    locked.save(update_fields=["gone_days", "started_at", "next_day", "finished_at"])


def _check_days(first_day: date, last_day: date, now: datetime) -> None:
    if last_day < first_day:
        raise InvalidValue("The period ends before it begins.", param="last_day")
    if last_day > now.astimezone(UTC).date():
        raise InvalidValue(
            "The period has future days: only real usage is replayed.", param="last_day"
        )
    if (last_day - first_day).days >= DAYS_MAX:
        raise InvalidValue(f"A replay takes at most {DAYS_MAX} days.", param="last_day")


def _words(error: DatabaseError) -> str:
    """Return what to tell the operator; nothing of an error that may pass by itself."""
    state = getattr(error.__cause__, "sqlstate", None)
    return {
        "22003": "the draft comes to an amount beyond what the ledger can hold",
        "57014": "the day has more usage than can be replayed in the time there is",
    }.get(state or "", "")
