"""What people read of usage and costs: sums by the hour, day, key and model, requests and their
receipts, compared with the facts."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from billing.reading import receipts, selectors
from billing.reading.sums import NOT_REQUESTS, UsageSums
from control.organizations.models import Organization
from tests.simulation.audit import Auditor
from tests.simulation.audit_sums import NANOS, SUMS, TOKENS
from tests.simulation.facts import Fact
from tests.simulation.oracle import received_at, require
from tests.simulation.world import World

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
RECEIPTS_MAX = 3
"""Receipts of an organization that are looked at."""


def check_readings(world: World, auditor: Auditor) -> None:
    """Raises BrokenError where a reader is told otherwise than the facts say."""
    for owner in world.organization_ids:
        facts = [
            usage.real for usage, _, _ in auditor.events if usage.real.organization_id == owner
        ]
        if facts:
            _check_sums(Organization.objects.get(id=owner), facts)
            _check_receipts(Organization.objects.get(id=owner), world, facts)


def _check_sums(organization: Organization, facts: list[Fact]) -> None:
    moments = [received_at(str(one.event_id)) for one in facts]
    start, end = min(moments), max(moments) + timedelta(minutes=1)
    for bucket, width in (("hour", HOUR), ("day", DAY)):
        points = selectors.usage_series(
            organization, start, end, bucket, group_by=("key", "model"),  # type: ignore[arg-type]
        )  # fmt: skip
        found = {(one.bucket_at, *one.group): _values(one.sums) for one in points}
        expected = _summed(facts, _by_time(width))
        require(found == expected, "A series is the sums of its requests", organization.pk, bucket)
    # Rollups know minutes: an interval's edges are read by whole ones.
    middle = _floor_at(sorted(moments)[len(moments) // 2], timedelta(minutes=1))
    later = [one for one in facts if received_at(str(one.event_id)) >= middle]
    groups = selectors.usage_by_group(organization, middle, end + DAY, group_by=("project",))
    found = {one.group: _values(one.sums) for one in groups}
    require(
        found == _summed(later, lambda one: (one.project_id,)),
        "Groups are the sums of their requests", organization.pk, middle,
    )  # fmt: skip
    dearest = [one.sums.charged_nanos for one in groups]
    require(dearest == sorted(dearest, reverse=True), "The dearest is first", dearest)


def _check_receipts(organization: Organization, world: World, facts: list[Fact]) -> None:
    """The newest requests are shown as they really were, with what each meter came to."""
    requests = [one for one in facts if one.outcome not in NOT_REQUESTS]
    newest = sorted(requests, key=lambda one: one.event_id, reverse=True)[:RECEIPTS_MAX]
    shown = selectors.recent_events(organization, now=world.clock.now, limit=RECEIPTS_MAX)
    require(
        [(one.event_id, one.outcome, one.charged_nanos) for one in shown]
        == [(one.event_id, one.outcome, one.due.charged_nanos) for one in newest],
        "The newest requests are shown as they were", organization.pk,
    )  # fmt: skip
    tariffs = {one.price_id: one for one in world.tariffs}
    for fact in newest:
        made = receipts.receipt(organization, fact.event_id)
        lines = [(one.tokens, one.nanos_per_million_tokens, one.amount_nanos) for one in made.lines]
        price = tariffs.get(fact.price_id)
        uncached = fact.input_tokens - fact.cached_input_tokens
        expected = [
            (uncached, price and price.input_nanos, fact.input_nanos),
            (fact.cached_input_tokens, price and price.cached_input_nanos, fact.cached_input_nanos),
            (fact.output_tokens, price and price.output_nanos, fact.output_nanos),
        ]
        require(lines == expected, "A receipt says what was booked", fact, lines)


def _summed(facts: list[Fact], key: Callable[[Fact], tuple[Any, ...]]) -> dict[Any, Any]:
    sums: dict[Any, Counter[str]] = {}
    for one in facts:
        parts = sums.setdefault(key(one), Counter())
        parts[f"{one.outcome}_count"] += 1
        parts["request_count"] += one.outcome not in NOT_REQUESTS
        for name in TOKENS:
            parts[name] += getattr(one, name)
        for name in NANOS:
            parts["waived_nanos" if one.is_waived else name] += getattr(one, name)
    return {name: tuple(one[measure] for measure in SUMS) for name, one in sums.items()}


def _values(sums: UsageSums) -> tuple[int, ...]:
    return tuple(getattr(sums, name) for name in SUMS)


def _by_time(width: timedelta) -> Callable[[Fact], tuple[Any, ...]]:
    def key(fact: Fact) -> tuple[Any, ...]:
        at = _floor_at(received_at(str(fact.event_id)), width)
        return (at, fact.key_id, fact.model_id)

    return key


def _floor_at(at: datetime, width: timedelta) -> datetime:
    return at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % width
