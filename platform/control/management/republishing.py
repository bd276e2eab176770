"""The feed held against control's rows: what older code published otherwise, or never, is published
anew, so that an upgrade leaves the data plane with no record of yesterday's form."""

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
"""How many organizations are read at once."""


def republish_outdated() -> int:
    """Publish each organization, project and key whose record in the feed is not what its row says;
    return how many records. Safe beside services that run: what differs is looked at again under
    the locks that every change of it takes."""
    said = records_of(BUILDERS)
    ids = list(Organization.objects.order_by("id").values_list("id", flat=True))
    count = 0
    for start in range(0, len(ids), PAGE):
        for organization_id in _outdated(ids[start : start + PAGE], said):
            count += _republish(organization_id)
    return count


def _outdated(ids: list[str], said: dict[tuple[str, str], str]) -> list[str]:
    """Return those of the organizations of which something is to be published anew."""
    projects = Project.objects.filter(organization_id__in=ids)
    keys = ApiKey.objects.filter(organization_id__in=ids, revoked_at__isnull=True)
    owner_of = {
        "organization": {each: each for each in ids},
        "project": dict(projects.values_list("id", "organization_id")),
        "api_key": dict(keys.values_list("id", "organization_id")),
    }
    news = [one for kind, owned in owner_of.items() for one in build_records(kind, owned)]
    return sorted({owner_of[one.kind][one.record_id] for one in _differing(news, said)})


@transaction.atomic
def _republish(organization_id: str) -> int:
    organization = locked_organization(organization_id)
    locked = {
        "organization": [organization.id],
        "project": [one.id for one in locked_projects(organization)],
        "api_key": [one.id for one in locked_live_keys(organization)],
    }
    news = [one for kind, ids in locked.items() for one in build_records(kind, ids)]
    differing = _differing(news, records_of(BUILDERS, [one.record_id for one in news]))
    publish(differing)
    return len(differing)


def _differing(news: Iterable[FeedRecord], said: dict[tuple[str, str], str]) -> list[FeedRecord]:
    return [one for one in news if encode_record(one) != said.get((one.kind, one.record_id))]
