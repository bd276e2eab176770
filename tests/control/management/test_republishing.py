"""What older code said to the data plane is put right once, and nothing else is touched."""

import json

import pytest

from control.api_keys.services import revoke_key
from control.feed.models import PublishedChange
from control.feed.selectors import last_record, last_version
from control.management.commands.upgrade import republish_outdated
from control.organizations.services import suspend_organization
from control.permissions import Actor
from serving.contract.codec import decode
from serving.contract.feed import RECORD_OF_KIND
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def say(kind: str, record_id: str, record: str | None) -> None:
    PublishedChange.objects.create(kind=kind, record_id=record_id, record=record)


def test_keys_of_an_organization_that_older_code_suspended_are_known_again(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    """Older code deleted the keys of whom it suspended: they were told that they have no key."""
    key, _ = org.mint()
    revoked, _ = org.mint()
    revoke_key(actor=org.actor, key=revoked)
    suspend_organization(
        actor=Actor.for_system("tests"), organization=org.organization, reason="abuse"
    )
    say("api_key", key.id, None)
    before = last_version()
    assert republish_outdated() == 1
    assert decode((last_record("api_key", key.id) or "").encode(), RECORD_OF_KIND["api_key"])
    assert last_record("api_key", revoked.id) is None
    assert PublishedChange.objects.filter(version__gt=before).count() == 1
    assert republish_outdated() == 0


def test_records_of_an_older_form_are_told_in_todays(org: SeededOrganization) -> None:
    """Older code named one budget of each."""
    key, _ = org.mint()
    wanted = {}
    for kind, record_id in [
        ("organization", org.id), ("project", org.project.id), ("api_key", key.id),
    ]:  # fmt: skip
        wanted[kind, record_id] = last_record(kind, record_id)
        record = json.loads(wanted[kind, record_id] or "")
        del record["budget_ids"]
        say(kind, record_id, json.dumps(record | {"budget_id": record_id}))
    assert republish_outdated() == 3
    assert {each: last_record(*each) for each in wanted} == wanted
