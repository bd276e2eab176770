"""Republishing of outdated feed records: those that older code published in another form, or never,
so that after an upgrade the data plane has no record of the old form."""

from collections.abc import Iterable

from django.db import transaction

from control.api_keys.models import ApiKey
from control.api_keys.selectors import locked_live_keys
from control.feed.selectors import records_of
from control.feed.services import FeedRecord, encode_record, publish
from control.feed_records import BUILDERS, build_records
from control.organizations.models import Organization, Project
from control.organizations.selectors import locked_organization, locked_projects

PAGE = 500
"""The number of organizations that are read at once."""


def republish_outdated() -> int:
    """Publish each organization, project and key whose feed record differs from its row.

    Returns the number of records. It is safe while services run: records that differ are compared
    again under the locks that every change of the rows takes.
    """
    published = records_of(BUILDERS)
    ids = list(Organization.objects.order_by("id").values_list("id", flat=True))
    count = 0
    for start in range(0, len(ids), PAGE):
        for organization_id in _outdated(ids[start : start + PAGE], published):
            count += _republish(organization_id)
    return count


def _outdated(ids: list[str], published: dict[tuple[str, str], str]) -> list[str]:
    """Return those of the organizations that have an outdated record."""
    projects = Project.objects.filter(organization_id__in=ids)
    keys = ApiKey.objects.filter(organization_id__in=ids, revoked_at__isnull=True)
    owners = {
        "organization": {each: each for each in ids},
        "project": dict(projects.values_list("id", "organization_id")),
        "api_key": dict(keys.values_list("id", "organization_id")),
    }
    records = [each for kind, owned in owners.items() for each in build_records(kind, owned)]
    return sorted({owners[each.kind][each.record_id] for each in _differing(records, published)})


@transaction.atomic
def _republish(organization_id: str) -> int:
    organization = locked_organization(organization_id)
    locked = {
        "organization": [organization.id],
        "project": [each.id for each in locked_projects(organization)],
        "api_key": [each.id for each in locked_live_keys(organization)],
    }
    records = [each for kind, ids in locked.items() for each in build_records(kind, ids)]
    differing = _differing(records, records_of(BUILDERS, [each.record_id for each in records]))
    publish(differing)
    return len(differing)


def _differing(
    records: Iterable[FeedRecord], published: dict[tuple[str, str], str]
) -> list[FeedRecord]:
    return [
        each
        for each in records
        if encode_record(each) != published.get((each.kind, each.record_id))
    ]
