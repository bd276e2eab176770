"""A key's secrets: replaced with an overlap, and digested with peppers that change."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from control.api_keys.models import ApiKey, PreviousSecret, digests_of
from control.api_keys.playground import playground_secret
from control.api_keys.selectors import key_by_digests
from control.api_keys.services import (
    PREVIOUS_SECRETS_MAX,
    DuplicateSubmission,
    create_api_key,
    revoke_key,
    revoke_previous_secrets,
    rotate_key,
    update_api_key,
)
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue
from control.feed.selectors import last_record
from control.organizations.members import remove_member
from control.permissions import Role
from serving.contract.api_key import pepper_id
from serving.contract.codec import decode
from serving.contract.records import ApiKeyRecord
from tests.fixtures.organizations import SeededOrganization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
NEW = "another pepper, 0123456789"


def opens(secret: str) -> bool:
    return key_by_digests(digests_of(secret), timezone.now()) is not None


def published(key: ApiKey) -> ApiKeyRecord:
    record = last_record("api_key", key.id)
    assert record is not None
    return decode(record.encode(), ApiKeyRecord)


def test_the_feed_tells_of_old_secrets_and_when_they_end(org: SeededOrganization) -> None:
    key, first = org.mint()
    assert "old_secrets" not in str(last_record("api_key", key.id))
    before = timezone.now()
    key, second = rotate_key(actor=org.actor, key=key, last_four=key.last_four)
    record = published(key)
    [old] = record.old_secrets
    assert (record.digest, old.digest) == (digests_of(second)[0], digests_of(first)[0])
    assert timedelta(hours=24) <= old.ends_at - before < timedelta(hours=24, minutes=1)
    [deed] = AuditEvent.objects.filter(action="api_key.rotated")
    assert deed.details["before"]["secret"].endswith(first[-4:])
    assert first not in str(deed.details) + record.digest


def test_every_replaced_secret_works_to_its_own_end(org: SeededOrganization) -> None:
    key, first = org.mint()
    now = timezone.now()
    key, second = rotate_key(
        actor=org.actor, key=key, last_four=key.last_four,
        previous_secret_ends_at=now + timedelta(hours=2),
    )  # fmt: skip
    key, third = rotate_key(actor=org.actor, key=key, last_four=key.last_four)
    assert all(map(opens, (first, second, third)))
    PreviousSecret.objects.filter(last_four=first[-4:]).update(ends_at=now)
    assert [opens(each) for each in (first, second, third)] == [False, True, True]
    revoke_previous_secrets(actor=org.actor, key=key)
    assert [opens(each) for each in (first, second, third)] == [False, False, True]


def test_an_overlap_of_nothing_ends_the_old_secret_at_once(org: SeededOrganization) -> None:
    key, first = org.mint()
    key, second = rotate_key(
        actor=org.actor, key=key, last_four=key.last_four, previous_secret_ends_at=timezone.now()
    )
    assert [opens(first), opens(second)] == [False, True]
    assert "old_secrets" not in str(last_record("api_key", key.id))


def test_an_overlap_has_an_end_and_old_secrets_a_number(org: SeededOrganization) -> None:
    key, _ = org.mint()
    with pytest.raises(InvalidValue) as refused:
        rotate_key(
            actor=org.actor, key=key, last_four=key.last_four,
            previous_secret_ends_at=timezone.now() + timedelta(days=31),
        )  # fmt: skip
    assert refused.value.param == "previous_secret_ends_at"
    for _ in range(PREVIOUS_SECRETS_MAX):
        key, _ = rotate_key(actor=org.actor, key=key, last_four=key.last_four)
    with pytest.raises(Conflict, match="revoke them first"):
        rotate_key(actor=org.actor, key=key, last_four=key.last_four)


def test_a_revoked_key_opens_nothing_by_its_old_secrets(org: SeededOrganization) -> None:
    key, first = org.mint()
    key, _ = rotate_key(actor=org.actor, key=key, last_four=key.last_four)
    revoke_key(actor=org.actor, key=key)
    assert not opens(first)
    assert last_record("api_key", key.id) is None


def test_who_rotates_a_key_has_it_and_who_leaves_takes_the_old_secret_along(
    org: SeededOrganization,
) -> None:
    dev = org.join(Role.DEVELOPER)
    key, first = create_api_key(actor=org.actor_of(dev), project=org.project, name="Theirs")
    key, second = rotate_key(actor=org.actor, key=key, last_four=key.last_four)
    assert key.created_by == org.owner
    assert (opens(first), opens(second)) == (True, True)
    remove_member(actor=org.actor, membership=org.seat(dev))
    assert (opens(first), opens(second)) == (False, True)
    assert "old_secrets" not in str(last_record("api_key", key.id))


def test_the_playgrounds_keys_are_neither_changed_nor_rotated(org: SeededOrganization) -> None:
    playground_secret(user=org.owner, project=org.project)
    key = ApiKey.objects.get()
    with pytest.raises(Conflict):
        rotate_key(actor=org.actor, key=key, last_four=key.last_four)
    with pytest.raises(Conflict):
        update_api_key(actor=org.actor, key=key, scopes=["manage"])
    revoke_key(actor=org.actor, key=key)


def test_a_form_makes_one_key(org: SeededOrganization) -> None:
    key, _ = org.mint(form_token="a")
    with pytest.raises(DuplicateSubmission) as twice:
        org.mint(form_token="a")
    assert twice.value.key == key
    assert ApiKey.objects.count() == 1


def test_with_a_new_pepper_old_keys_go_on_and_new_ones_say_which(
    org: SeededOrganization, settings: Any
) -> None:
    old_pepper = settings.CONFIG.key_peppers[0]
    old_key, old = org.mint()
    settings.CONFIG = dataclasses.replace(settings.CONFIG, key_peppers=(NEW, old_pepper))
    new_key, new = org.mint(name="New")
    assert (opens(old), opens(new)) == (True, True)
    assert (old_key.pepper_id, new_key.pepper_id) == (pepper_id(old_pepper), pepper_id(NEW))
    key, rotated = rotate_key(actor=org.actor, key=old_key, last_four=old_key.last_four)
    assert key.pepper_id == new_key.pepper_id
    settings.CONFIG = dataclasses.replace(settings.CONFIG, key_peppers=(NEW,))
    assert (opens(old), opens(rotated), opens(new)) == (False, True, True)
