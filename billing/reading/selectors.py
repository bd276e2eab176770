"""Questions about usage. The organization comes first; another's rows are never seen. Without
`with_money`, for who may not see money, what is returned has none: every charge in it is zero."""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import BooleanField, Max, Min, QuerySet
from django.db.models.expressions import RawSQL

from billing.credit import selectors as credit
from billing.following.models import HourRollup
from billing.following.trimming import minutes_kept_from
from billing.metering.batch import LOST
from billing.metering.models import Day, UsageCorrection, UsageEvent
from billing.reading import rollups
from billing.reading.buckets import HOURS, WIDTH, Bucket, Span, floor, series_spans, spans
from billing.reading.days import midnight
from billing.reading.filters import EVERYTHING, Dimension, UsageFilters
from billing.reading.sums import NOT_REQUESTS, Overview, Usage, UsageGroup, UsagePoint, UsageSums
from control.catalog.models import Model, Variant
from control.organizations.models import Organization, Project
from control.pricing.models import Price
from serving.contract.ids import id_floor

EXPORT_PAGE = 2000
"""Events read at once by an export: nothing is held in the database between two pages."""
OVERVIEW_DAYS = 14
OVERVIEW_LATEST = 6
BEYOND_CALENDARS = id_floor(datetime(9000, 1, 1, tzinfo=UTC))
"""Ids from here on name no day that an archive could have."""

# The newest events that pass a filter. Rollups know which hours have enough of them, so that a rare
# key's are found without walking through everybody else's; the last hours are looked through in any
# case, since rollups follow the events by seconds. Of the hour that the range ends in nobody knows
# how many are left, so it counts for none.
MATCHING_IDS = """
metering_usage_event.event_id = ANY(ARRAY(WITH hours AS (
    SELECT bucket_at FROM (
        SELECT bucket_at, coalesce(sum(sum(
            request_count - refused_by_engine_count - hedged_count
        ) FILTER (
            WHERE bucket_at <= metering_received_at(%(last_id)s) - INTERVAL '1 hour'
        )) OVER (ORDER BY bucket_at DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
            AS newer_count
        FROM following_hour_rollup
        WHERE organization_id = %(organization_id)s
          AND bucket_at > metering_received_at(%(first_id)s) - INTERVAL '1 hour'
          AND bucket_at <= metering_received_at(%(last_id)s)
          AND {condition}
        GROUP BY bucket_at ORDER BY bucket_at DESC LIMIT %(limit)s + 1
    ) AS counted WHERE newer_count < %(limit)s
    UNION
    SELECT hour FROM unnest(%(fresh_hours)s::timestamptz[]) AS hour
), ranges AS (
    SELECT rpad(lpad(to_hex(starts_ms), 12, '0'), 32, '0')::uuid AS first_id,
        rpad(lpad(to_hex(starts_ms + 3600000), 12, '0'), 32, '0')::uuid AS last_id
    FROM (SELECT (extract(epoch FROM bucket_at) * 1000)::bigint AS starts_ms FROM hours) AS starts
)
SELECT found.event_id FROM ranges CROSS JOIN LATERAL (
    SELECT event_id FROM metering_usage_event
    WHERE organization_id = %(organization_id)s
      AND event_id >= greatest(ranges.first_id, %(first_id)s::uuid)
      AND event_id < least(ranges.last_id, %(last_id)s::uuid)
      AND outcome <> ALL(%(not_requests)s)
      AND NOT EXISTS (
        SELECT FROM metering_usage_correction AS corrected
        WHERE corrected.organization_id = metering_usage_event.organization_id
          AND corrected.event_id = metering_usage_event.event_id
          AND corrected.outcome = ANY(%(not_requests)s)
      )
      AND {condition}
    ORDER BY event_id DESC LIMIT %(limit)s
) AS found
ORDER BY found.event_id DESC LIMIT %(limit)s))
"""


def usage_series(
    organization: Organization,
    start: datetime,
    end: datetime,
    bucket: Bucket,
    *,
    group_by: Sequence[Dimension] = (),
    filters: UsageFilters = EVERYTHING,
    with_money: bool = True,
) -> list[UsagePoint]:
    """Return the usage in all buckets that touch [start, end), in order of time, then group.

    Buckets without usage are left out; `bucket_starts` names them all. TTFT is not counted. Where
    minutes are no longer kept, a series by the minute has each hour in its first minute.
    """
    kept_from = _minutes_kept_from() if bucket == "minute" else None
    places = series_spans(start, end, bucket, kept_from)
    question = rollups.Question(places, bucket, group_by, filters)
    return _points(organization, question, with_money)


def usage_by_group(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    group_by: Sequence[Dimension],
    filters: UsageFilters = EVERYTHING,
    with_ttft: bool = False,
    with_money: bool = True,
) -> list[UsageGroup]:
    """Return the usage of each group over [start, end), the dearest first.

    It is exact to the minute; an edge where minutes are no longer kept widens to its whole hour.
    """
    are_whole = all(floor(edge, "hour") == edge for edge in (start, end))
    places = spans(start, end, None if are_whole else _minutes_kept_from())
    since = places[0].start if with_ttft else None
    question = rollups.Question(places, None, group_by, filters, ttft_since=since)
    found = _points(organization, question, with_money)
    return _dearest_first(UsageGroup(one.group, one.sums) for one in found)


def usage_totals(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    filters: UsageFilters = EVERYTHING,
    with_ttft: bool = False,
    with_money: bool = True,
) -> UsageSums:
    """Return the sums over [start, end), as exact as those of `usage_by_group`."""
    groups = usage_by_group(
        organization,
        start,
        end,
        group_by=(),
        filters=filters,
        with_ttft=with_ttft,
        with_money=with_money,
    )
    return groups[0].sums if groups else UsageSums()


def overview(
    organization: Organization,
    now: datetime,
    *,
    project: Project | None = None,
    filters: UsageFilters = EVERYTHING,
    with_money: bool = True,
) -> Overview:
    """Return the money of an organization, or what a project of it may spend, the newest requests,
    and the usage of this UTC day and month. Where there is no request there is no usage to ask
    for."""
    if project is not None:
        filters = replace(filters, project_ids=(project.id,))
    funds = credit.funds(organization, now, project=project) if with_money else None
    latest = recent_events(
        organization, now=now, filters=filters, limit=OVERVIEW_LATEST, with_money=with_money
    )
    points = _points_of_overview(organization, now, filters, with_money) if latest else []
    speed = _total(points)
    today = floor(now, "day")
    of_month = [point for point in points if point.bucket_at >= today.replace(day=1)]
    first = today - WIDTH["day"] * (OVERVIEW_DAYS - 1)
    return Overview(
        balance_nanos=funds.balance_nanos if funds else None,
        held_nanos=funds.held_nanos if funds else None,
        available_nanos=funds.available_nanos if funds else None,
        binding_limit=funds.binding_limit if funds else None,
        latest=latest,
        today=_total(point for point in points if point.bucket_at == today),
        month=_total(of_month),
        days=_by_day(point for point in points if point.bucket_at >= first),
        models=_by_group(of_month),
        ttft_p50_seconds=speed.ttft_p50_seconds,
        ttft_p95_seconds=speed.ttft_p95_seconds,
    )


def recent_events(
    organization: Organization,
    *,
    now: datetime,
    filters: UsageFilters = EVERYTHING,
    start: datetime | None = None,
    end: datetime | None = None,
    before: uuid.UUID | None = None,
    limit: int = 50,
    with_money: bool = True,
) -> list[Usage]:
    """Return the newest requests of [start, end), or those older than `before`: the last id of the
    page above. Caller, supply and origin come with them."""
    first, last = _bounds(start, end, before)
    found = _requests(organization).order_by("-event_id")
    if filters.are_empty:
        found = found.filter(event_id__gte=first, event_id__lt=last)
    else:
        hour = floor(now, "hour")
        parameters = {
            "organization_id": organization.pk,
            "first_id": first,
            "last_id": last,
            "fresh_hours": [hour - WIDTH["hour"], hour],
            "limit": limit,
            "not_requests": list(NOT_REQUESTS),
        }
        found = found.filter(_matching(filters, parameters))
    newest = _corrected(organization, found[:limit])
    return newest if with_money else _without_money(newest)


def event_pages(
    organization: Organization,
    start: datetime,
    end: datetime,
    *,
    filters: UsageFilters = EVERYTHING,
    with_money: bool = True,
) -> Iterator[list[Usage]]:
    """Yield all requests of [start, end), oldest first, a page at a time; those of days that are in
    files alone come first, by the day they are accounted on.

    Each page is a query of its own: no cursor and no transaction wait for a slow reader.
    """
    for filed in _filed_pages(organization, start, end):
        real = _corrected(organization, filed)
        requests = [one for one in real if one.outcome not in NOT_REQUESTS]
        if passed := [one for one in requests if filters.admit(one)]:
            yield passed if with_money else _without_money(passed)
    mine = _requests(organization).filter(event_id__lt=id_floor(end), **filters.lookups())
    page = mine.filter(event_id__gte=id_floor(start))
    while found := _corrected(organization, page.order_by("event_id")[:EXPORT_PAGE]):
        yield found if with_money else _without_money(found)
        page = mine.filter(event_id__gt=found[-1].event_id)


def first_and_last_day(organization: Organization) -> tuple[datetime | None, datetime | None]:
    """Return the beginning of the first day with usage and the end of the last; None without."""
    sums = HourRollup.objects.filter(organization_id=organization.pk)
    found = sums.aggregate(first=Min("bucket_at"), last=Max("bucket_at"))
    if found["first"] is None:
        return None, None
    return floor(found["first"], "day"), floor(found["last"], "day") + WIDTH["day"]


def event(
    organization: Organization, event_id: uuid.UUID, *, with_money: bool = True
) -> Usage | None:
    """Return one request as it really was, from the archive where its day is there."""
    found = _corrected(organization, _events(organization).filter(event_id=event_id))
    if not found and event_id < BEYOND_CALENDARS:
        from billing.following.archive import find_event  # pyarrow is loaded where it is needed

        found = [filed] if (filed := find_event(event_id, organization.pk)) else []
    if not with_money:
        found = _without_money(found)
    return found[0] if found else None


def price(price_id: str) -> Price | None:
    """Return a published price with its book; it never changes."""
    published = Price.objects.select_related("book").filter(book__published_at__isnull=False)
    return published.filter(id=price_id).first()


def model_names(model_ids: Iterable[str]) -> dict[str, str]:
    """Return the public names of models by their ids."""
    return dict(Model.objects.filter(id__in=set(model_ids)).values_list("id", "public_id"))


def model_ids(names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the models with these public names."""
    return tuple(Model.objects.filter(public_id__in=set(names)).values_list("id", flat=True))


def variant_names(variant_ids: Iterable[str] | None = None) -> dict[str, str]:
    """Return the names of variants, such as `penstock-demo:int8`, by their ids; of all without."""
    found = Variant.objects.select_related("model")
    if variant_ids is not None:
        found = found.filter(id__in=set(variant_ids))
    return {variant.id: str(variant) for variant in found}


def require_filed(start: datetime, end: datetime) -> None:
    """Raise a ServiceError where a file of an archived day is not at hand that requests received in
    [start, end) may be in."""
    if Day.objects.filter(dropped_at__isnull=False, day__gte=start.date()).exists():
        from billing.following.archive import require_at_hand  # loads pyarrow

        require_at_hand(start, end)


def _filed_pages(
    organization: Organization, start: datetime, end: datetime
) -> Iterator[list[UsageEvent]]:
    if not Day.objects.filter(dropped_at__isnull=False, day__gte=start.date()).exists():
        return
    from billing.following.archive import filed_pages  # pyarrow is loaded where it is needed

    yield from filed_pages(organization.pk, start, end, page=EXPORT_PAGE)


def _points_of_overview(
    organization: Organization, now: datetime, filters: UsageFilters, with_money: bool
) -> list[UsagePoint]:
    """Return the days since the month began, and a fortnight at least, by model; TTFT is counted
    over the last 24 hours."""
    today, end = floor(now, "day"), floor(now, "hour") + WIDTH["hour"]
    start = min(today.replace(day=1), today - WIDTH["day"] * (OVERVIEW_DAYS - 1))
    question = rollups.Question(
        [Span(HOURS, start, end)], "day", ("model",), filters, ttft_since=end - WIDTH["day"]
    )
    return _points(organization, question, with_money)


def _points(
    organization: Organization, question: rollups.Question, with_money: bool
) -> list[UsagePoint]:
    found = rollups.answer(organization, question)
    if with_money:
        return list(found)
    return [UsagePoint(one.bucket_at, one.group, one.sums.without_money()) for one in found]


def _minutes_kept_from() -> datetime | None:
    """Return from when on usage is known by the minute; None where it always is."""
    day = minutes_kept_from()
    return midnight(day) if day else None


def _events(organization: Organization) -> QuerySet[UsageEvent]:
    rows = UsageEvent.objects.select_related("caller", "supply", "origin")
    return rows.filter(organization_id=organization.pk)


def _requests(organization: Organization) -> QuerySet[UsageEvent]:
    mine = UsageCorrection.objects.filter(organization_id=organization.pk)
    corrected = mine.filter(outcome__in=NOT_REQUESTS).values("event_id")
    return _events(organization).exclude(outcome__in=NOT_REQUESTS).exclude(event_id__in=corrected)


def _bounds(
    start: datetime | None, end: datetime | None, before: uuid.UUID | None
) -> tuple[uuid.UUID, uuid.UUID]:
    first = id_floor(start) if start else uuid.UUID(int=0)
    last = id_floor(end) if end else uuid.UUID(int=2**128 - 1)
    return first, min(last, before) if before else last


def _matching(filters: UsageFilters, parameters: dict[str, Any]) -> RawSQL:
    """Return the condition that an event is one of the ids, found before any event is looked at.
    Django knows no named parameters there."""
    statement = MATCHING_IDS.format(condition=filters.condition())
    values = parameters | filters.parameters()
    names = re.findall(r"%\((\w+)\)s", statement)
    places, numbered = [values[name] for name in names], re.sub(r"%\(\w+\)s", "%s", statement)
    return RawSQL(numbered, places, BooleanField())  # noqa: S611 -- no value is in the text


def _corrected(organization: Organization, rows: Iterable[UsageEvent]) -> list[Usage]:
    """Put the real outcome in the place of each request that was first reported as lost."""
    found = list(rows)
    lost = [one.event_id for one in found if one.outcome == LOST]
    if not lost:
        return list(found)
    mine = UsageCorrection.objects.select_related("caller", "supply", "origin")
    real = mine.filter(organization_id=organization.pk, event_id__in=lost)
    by_id = {one.event_id: one for one in real}
    return [by_id.get(one.event_id, one) for one in found]


def _without_money(events: list[Usage]) -> list[Usage]:
    """Take the charges off events that were read; nobody saves an event."""
    for one in events:
        one.input_nanos = one.cached_input_nanos = one.output_nanos = 0
        one.lease_nanos = None
    return events


def _total(points: Iterable[UsagePoint]) -> UsageSums:
    return sum((point.sums for point in points), UsageSums())


def _by_day(points: Iterable[UsagePoint]) -> list[UsagePoint]:
    days: dict[datetime, UsageSums] = {}
    for point in points:
        days[point.bucket_at] = days.get(point.bucket_at, UsageSums()) + point.sums
    return [UsagePoint(day, (), sums) for day, sums in days.items()]


def _by_group(points: Iterable[UsagePoint]) -> list[UsageGroup]:
    groups: dict[tuple[str, ...], UsageSums] = {}
    for point in points:
        groups[point.group] = groups.get(point.group, UsageSums()) + point.sums
    return _dearest_first(UsageGroup(group, sums) for group, sums in groups.items())


def _dearest_first(groups: Iterable[UsageGroup]) -> list[UsageGroup]:
    """Sort by charge, or by tokens where no charge is told."""
    return sorted(
        groups,
        key=lambda one: (
            -one.sums.charged_nanos,
            -one.sums.input_tokens - one.sums.output_tokens,
            one.group,
        ),
    )
