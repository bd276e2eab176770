"""Inference requests that were refused or failed: store what gateways report, list it, purge it."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, QuerySet
from django.utils.translation import gettext

from control.dataplane.models import FailedRequest
from control.errors import ObjectNotFound
from control.organizations.models import Organization
from serving.contract import failed_requests as contract
from serving.contract.codec import storable
from serving.contract.ids import id_floor

RETENTION = timedelta(days=30)
HOURLY_MAX = 1_000
"""The most that is stored of an organization within an hour."""
PURGED_AT_ONCE = 10_000


@transaction.atomic
def store(reported: contract.FailedRequests, *, now: datetime) -> contract.StoredCount:
    """Store the failed requests of known organizations, up to the hourly limit of each. Stored ones
    may be reported again."""
    by_organization: defaultdict[str, list[FailedRequest]] = defaultdict(list)
    for each in reported.failed_requests:
        by_organization[each.organization_id].append(_row(each))
    known = Organization.objects.filter(id__in=by_organization).values_list("id", flat=True)
    counts = _counts_since(now - timedelta(hours=1), list(known))
    rows = [
        row
        for organization_id in known
        for row in by_organization[organization_id][: max(HOURLY_MAX - counts[organization_id], 0)]
    ]
    FailedRequest.objects.bulk_create(rows, ignore_conflicts=True)
    return contract.StoredCount(len(rows))


def failed_requests(organization: Organization, **filters: Any) -> QuerySet[FailedRequest]:
    """Return an organization's failed requests, newest first. A filter is a field's value, or
    `start_time` (inclusive) and `end_time` (exclusive)."""
    lookups = {"start_time": "request_id__gte", "end_time": "request_id__lt"}
    bounds = {lookups[name]: id_floor(filters.pop(name)) for name in filters.keys() & lookups}
    found = FailedRequest.objects.filter(organization=organization, **bounds, **filters)
    return found.order_by("-request_id")


def failed_request(organization: Organization, request_id: UUID) -> FailedRequest:
    """Return one failed request of an organization. Raises ObjectNotFound."""
    found = failed_requests(organization, request_id=request_id).first()
    if found is None:
        raise ObjectNotFound(gettext("There is no such failed request."))
    return found


def purge(*, now: datetime) -> int:
    """Delete what is older than 30 days; return the number."""
    old = FailedRequest.objects.filter(received_at__lt=now - RETENTION)
    purged = 0
    while ids := list(old.values_list("pk", flat=True)[:PURGED_AT_ONCE]):
        purged += FailedRequest.objects.filter(pk__in=ids).delete()[0]
    return purged


def _counts_since(start: datetime, organization_ids: list[str]) -> defaultdict[str, int]:
    rows = FailedRequest.objects.filter(
        organization__in=organization_ids, request_id__gte=id_floor(start)
    )
    counted = rows.values_list("organization_id").annotate(count=Count("pk"))
    return defaultdict(int, counted)


def _row(reported: contract.FailedRequest) -> FailedRequest:
    return FailedRequest(
        request_id=reported.request_id,
        organization_id=reported.organization_id,
        project_id=reported.project_id,
        key_id=reported.key_id,
        variant_id=reported.variant_id or "",
        received_at=reported.received_at,
        endpoint=storable(reported.endpoint),
        status=reported.status,
        code=storable(reported.code),
        param=storable(reported.param),
        message=storable(reported.message),
        client_request_id=storable(reported.client_request_id),
    )
