"""Reads the audit log."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet
from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from control.audit.models import AuditEvent, ChainVerification, UnchainedEvent
from control.audit.pseudonyms import by_people_named

PAGE_EVENTS = 500
"""Events per query of an export."""


@dataclass(frozen=True, slots=True)
class EventFilters:
    """Filters of audit events: the kind of target (`about`, such as `key`), a part of the actor's
    name (`by`), and times within [start, end). An empty value or None filters nothing."""

    about: str = ""
    by: str = ""
    start: datetime | None = None
    end: datetime | None = None


ALL_EVENTS = EventFilters()


def events(
    organization_id: str,
    *,
    filters: EventFilters = ALL_EVENTS,
    before: int | None = None,
    limit: int,
) -> list[AuditEvent]:
    """Return an organization's audit events, the latest first; with `before`, those before this
    id."""
    found = _filtered(organization_id, filters)
    if before is not None:
        found = found.filter(id__lt=before)
    return list(found.order_by("-id")[:limit])


def event_pages(
    organization_id: str, *, filters: EventFilters = ALL_EVENTS
) -> Iterator[list[AuditEvent]]:
    """Yield all audit events, the latest first, in pages, so that no snapshot is held for long."""
    before = None
    while page := events(organization_id, filters=filters, before=before, limit=PAGE_EVENTS):
        yield page
        before = page[-1].pk


def events_by(user_id: str) -> QuerySet[AuditEvent]:
    """Return a person's audit events in all organizations, the latest first."""
    return AuditEvent.objects.filter(actor_kind="user", actor_id=user_id).order_by("-id")


def all_events(
    *,
    start_time: datetime | None = None,
    end_time: datetime | None = None,
    operator_token_id: str = "",
    **exact: str,
) -> QuerySet[AuditEvent]:
    """Return the audit events of all organizations, for operators, within [start_time, end_time),
    by an operator token, and with exact values of columns such as `action`."""
    found = AuditEvent.objects.filter(**exact)
    if start_time is not None:
        found = found.filter(created_at__gte=start_time)
    if end_time is not None:
        found = found.filter(created_at__lt=end_time)
    if operator_token_id:
        found = found.filter(details__operator_token=operator_token_id)
    return found


def unchained_count() -> int:
    """Return the number of audit events that are not in the chain yet."""
    return UnchainedEvent.objects.count()


def last_verification() -> ChainVerification | None:
    """Return the latest verification of the chain."""
    return ChainVerification.objects.first()


def metrics() -> Iterator[Metric]:
    """Return the number of unchained events and the result of the last verification."""
    unchained = GaugeMetricFamily(
        "penstock_audit_events_unchained", "Audit events that are not in the hash chain yet."
    )
    unchained.add_metric([], unchained_count())
    yield unchained
    proof = last_verification()
    if proof is not None:
        faults = GaugeMetricFamily(
            "penstock_audit_chain_errors", "Errors in the audit log's hash chain; alert if not 0."
        )
        faults.add_metric([], len(proof.faults))
        age = GaugeMetricFamily(
            "penstock_audit_chain_verification_age_seconds",
            "Time since the chain was last verified.",
        )
        age.add_metric([], (timezone.now() - proof.made_at).total_seconds())
        yield from (faults, age)


def _filtered(organization_id: str, filters: EventFilters) -> QuerySet[AuditEvent]:
    found = AuditEvent.objects.select_related("link").filter(organization_id=organization_id)
    if filters.about:
        found = found.filter(action__startswith=f"{filters.about}.")
    if filters.by:
        by_person = by_people_named(filters.by)
        found = found.filter(Q(actor_name__icontains=filters.by) | by_person)
    if filters.start is not None:
        found = found.filter(created_at__gte=filters.start)
    if filters.end is not None:
        found = found.filter(created_at__lt=filters.end)
    return found
