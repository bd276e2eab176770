"""Judging each hour once, in its turn: what engines counted against what was booked, kept for
operators to look at, with an alarm for what cannot be explained."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from billing.economics.models import EngineLife, JudgedHour, Judgement
from billing.economics.reconciliation import ONE_HOUR, SETTLED_AFTER, Reconciled, reconcile
from control.alarms.count import OPERATOR, raise_alarms

MISSED_MAX = timedelta(hours=48)
"""So far back hours are made up for that nobody judged while the worker was away."""

logger = structlog.get_logger(__name__)


def judge_missed_hours(*, now: datetime) -> int:
    """Judge every hour that all events have had time to reach and that was not judged yet; return
    how many alarms that made. Safe to run twice at once."""
    return sum(judge_hour(hour_at, now=now) for hour_at in missed_hours(now))


def missed_hours(now: datetime) -> list[datetime]:
    """Return the hours to judge, the oldest first: none from before the first engine was sampled,
    the newest even where none ever was."""
    newest = full_hour(now - SETTLED_AFTER) - ONE_HOUR
    first = EngineLife.objects.order_by("started_at").values_list("started_at", flat=True).first()
    oldest = max(full_hour(now - MISSED_MAX), full_hour(first)) if first else newest
    hours = [oldest + ONE_HOUR * count for count in range((newest - oldest) // ONE_HOUR + 1)]
    judged = set(JudgedHour.objects.filter(hour_at__in=hours).values_list("hour_at", flat=True))
    return [hour_at for hour_at in hours if hour_at not in judged]


def judge_hour(hour_at: datetime, *, now: datetime) -> int:
    """Compare one hour of all replicas, keep what was found, and alarm the operator of what cannot
    be explained; return of how many replicas. An hour that was judged is left alone.

    Reads before it writes: a transaction that writes holds every follower up while it reads.
    """
    if JudgedHour.objects.filter(hour_at=hour_at).exists():
        return 0
    return _keep(hour_at, reconcile(hour_at, hour_at + ONE_HOUR, now=now), now=now)


@transaction.atomic
def _keep(hour_at: datetime, found: Sequence[Reconciled], *, now: datetime) -> int:
    hour, is_new = JudgedHour.objects.get_or_create(hour_at=hour_at, defaults={"judged_at": now})
    if not is_new:
        return 0
    Judgement.objects.bulk_create(judgement_of(one, hour) for one in found)
    alarming = [one for one in found if one.is_alarming]
    for one in alarming:
        _log(one)
    sampled_count = sum(one.is_sampled for one in alarming)
    raise_alarms(
        {
            (OPERATOR, "engine_difference"): sampled_count,
            (OPERATOR, "engine_unsampled"): len(alarming) - sampled_count,
        },
        now=now,
    )
    return len(alarming)


def judgement_of(one: Reconciled, hour: JudgedHour) -> Judgement:
    """Return what is kept of a reconciled hour."""
    engine, events = one.engine, one.events
    return Judgement(
        hour=hour,
        replica_id=engine.replica_id,
        deployment_id=engine.deployment_id,
        begins_at=engine.begins_at,
        ends_at=engine.ends_at,
        is_sampled=one.is_sampled,
        is_alarming=one.is_alarming,
        engine_input_tokens=engine.input_tokens,
        engine_output_tokens=engine.output_tokens,
        event_count=events.request_count,
        event_input_tokens=events.input_tokens,
        event_output_tokens=events.output_tokens,
        unexplained_input_tokens=one.unexplained_input_tokens,
        unexplained_output_tokens=one.unexplained_output_tokens,
        reasons=[
            [reason.words, reason.side, reason.input_tokens, reason.output_tokens]
            for reason in one.reasons
        ],
    )


def full_hour(moment: datetime) -> datetime:
    """Return the full hour at or before a moment."""
    return moment.replace(minute=0, second=0, microsecond=0)


def _log(one: Reconciled) -> None:
    logger.error(
        "engine_and_books_differ",
        replica_id=one.engine.replica_id,
        deployment_id=one.engine.deployment_id,
        hour_at=one.engine.hour_at.isoformat(),
        is_sampled=one.is_sampled,
        unexplained_input_tokens=one.unexplained_input_tokens,
        unexplained_output_tokens=one.unexplained_output_tokens,
    )
