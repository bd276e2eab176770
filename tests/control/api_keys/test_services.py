"""API keys: minted once, stored as digests, ended at once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.utils import timezone

from control.api_keys.models import ApiKey, ApiKeyKind, Scope
from control.api_keys.playground import LIFETIME, playground_secret
from control.api_keys.services import (
    create_api_key,
    record_key_usage,
    revoke_key,
    revoke_previous_secrets,
    rotate_key,
    update_api_key,
)
from control.errors import Conflict, InvalidValue, NotPermitted, ObjectNotFound
from control.feed.selectors import last_record
from control.organizations.members import remove_member
from control.organizations.projects import archive_project
from control.organizations.services import resume_organization, suspend_organization
from control.permissions import Actor, Role
from serving.contract import api_key as secret_form
from serving.contract.codec import decode
from serving.contract.records import ApiKeyRecord
from tests.fixtures.organizations import OPERATOR, SeededOrganization


def published(key: ApiKey) -> ApiKeyRecord | None:
    record = last_record("api_key", key.id)
    return decode(record.encode(), ApiKeyRecord) if record else None


def whole_database() -> str:
    """Return every row of every table as text."""
    texts = []
    with connection.cursor() as cursor:
        for model in apps.get_models():
            table = connection.ops.quote_name(model._meta.db_table)
            cursor.execute(f"SELECT t::text FROM {table} AS t")  # noqa: S608 - our own tables
            texts += [row[0] for row in cursor.fetchall()]
    return "\n".join(texts)


def test_a_key_is_well_formed_and_known_to_the_gateway_by_its_digest(
    org: SeededOrganization,
) -> None:
    key, secret = org.mint()
    record = published(key)
    assert secret_form.is_well_formed(secret)
    assert record is not None
    assert record.digest == secret_form.digest(secret, settings.CONFIG.key_peppers[0].encode())


def test_no_secret_is_stored_anywhere(org: SeededOrganization) -> None:
    _, secret = org.mint()
    derived = playground_secret(user=org.owner, project=org.project)
    everything = whole_database()
    assert secret[14:-4] not in everything
    assert derived[14:-4] not in everything


def test_what_may_be_shown_of_a_secret_is_its_ends(org: SeededOrganization) -> None:
    key, secret = org.mint()
    assert key.masked == f"{secret[:13]}…{secret[-4:]}"


def test_limits_travel_with_the_key(org: SeededOrganization) -> None:
    end = timezone.now() + timedelta(days=1)
    key, _ = org.mint(
        allowed_models=["small"],
        allowed_networks=["10.0.0.0/8"],
        expires_at=end,
        spend_limit_nanos=5,
    )
    record = published(key)
    assert record is not None
    assert (record.models, record.networks) == (("small",), ("10.0.0.0/8",))
    assert (record.expires_at, record.budget_ids) == (end, (f"limit:{key.id}",))


def test_a_network_of_mapped_addresses_is_ipv4s(org: SeededOrganization) -> None:
    key, _ = org.mint(allowed_networks=["::ffff:10.0.0.0/104", "::/8"])
    assert key.allowed_networks == ["10.0.0.0/8", "::/8"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "  "),
        ("name", "x" * 101),
        ("scopes", []),
        ("scopes", ["root"]),
        ("allowed_models", []),
        ("allowed_networks", ["10.0.0.1/8"]),
        ("allowed_networks", ["here"]),
        ("expires_at", timezone.now() - timedelta(seconds=1)),
        ("spend_limit_nanos", -1),
    ],
)
def test_a_bad_wish_is_refused_by_name(org: SeededOrganization, field: str, value: Any) -> None:
    with pytest.raises(InvalidValue) as refusal:
        org.mint(**{field: value})
    assert refusal.value.param == field
    assert not ApiKey.objects.exists()


def test_a_revoked_key_is_deleted_from_the_feed_and_stays_revoked(org: SeededOrganization) -> None:
    key, _ = org.mint()
    revoke_key(actor=org.actor, key=key)
    assert published(key) is None
    with pytest.raises(Conflict):
        revoke_key(actor=org.actor, key=key)
    with pytest.raises(Conflict):
        update_api_key(actor=org.actor, key=key, name="Again")


def test_archiving_a_project_revokes_its_keys(org: SeededOrganization) -> None:
    key, _ = org.mint()
    archive_project(actor=org.actor, project=org.project)
    key.refresh_from_db()
    assert key.revoked_at is not None
    assert published(key) is None


def test_keys_of_a_suspended_organization_stay_published_so_that_they_are_told_why(
    org: SeededOrganization,
) -> None:
    kept, revoked = org.mint()[0], org.mint(name="Old")[0]
    revoke_key(actor=org.actor, key=revoked)
    suspend_organization(actor=OPERATOR, organization=org.organization, reason="abuse")
    assert published(kept) is not None
    resume_organization(actor=OPERATOR, organization=org.organization)
    assert published(kept) is not None
    assert published(revoked) is None


def test_no_key_is_minted_where_keys_have_ended(org: SeededOrganization) -> None:
    suspend_organization(actor=OPERATOR, organization=org.organization, reason="abuse")
    with pytest.raises(Conflict, match="suspended"):
        org.mint()
    resume_organization(actor=OPERATOR, organization=org.organization)
    archive_project(actor=org.actor, project=org.project)
    with pytest.raises(Conflict, match="archived"):
        org.mint()


def test_a_developer_mints_keys_but_none_that_manage(org: SeededOrganization) -> None:
    developer = org.actor_of(org.join(Role.DEVELOPER))
    fields = {"actor": developer, "project": org.project, "name": "Mine"}
    create_api_key(**fields)
    with pytest.raises(NotPermitted):
        create_api_key(**fields, scopes=[Scope.MANAGE])


def test_a_developer_neither_revokes_nor_rotates_a_managing_key(org: SeededOrganization) -> None:
    key, _ = org.mint(scopes=[Scope.MANAGE])
    developer = org.actor_of(org.join(Role.DEVELOPER))
    with pytest.raises(NotPermitted):
        revoke_key(actor=developer, key=key)
    with pytest.raises(NotPermitted):
        rotate_key(actor=developer, key=key, last_four=key.last_four)
    rotate_key(actor=org.actor, key=key, last_four=key.last_four)
    with pytest.raises(NotPermitted):
        revoke_previous_secrets(actor=developer, key=key)


CHANGES: dict[str, Callable[[Actor, ApiKey], object]] = {
    "rotate": lambda actor, key: rotate_key(actor=actor, key=key, last_four=key.last_four),
    "edit": lambda actor, key: update_api_key(
        actor=actor, key=key, allowed_networks=None, name="Other"
    ),
    "end old secrets": lambda actor, key: revoke_previous_secrets(actor=actor, key=key),
    "revoke": lambda actor, key: revoke_key(actor=actor, key=key),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_developer_changes_only_their_own_keys(
    org: SeededOrganization, change: Callable[[Actor, ApiKey], object]
) -> None:
    owners, _ = org.mint()
    developer, admin = org.actor_of(org.join(Role.DEVELOPER)), org.actor_of(org.join(Role.ADMIN))
    own, _ = create_api_key(actor=developer, project=org.project, name="Mine")
    of_nobody, _ = create_api_key(actor=OPERATOR, project=org.project, name="Platform")
    for key in (owners, own, of_nobody):
        rotated, _ = rotate_key(actor=OPERATOR, key=key, last_four=key.last_four)
        key.last_four = rotated.last_four
    for key in (owners, of_nobody):
        with pytest.raises(NotPermitted, match="created"):
            change(developer, key)
        change(admin, key)
    change(developer, own)


def test_who_was_removed_a_moment_ago_makes_and_takes_no_key(org: SeededOrganization) -> None:
    """Their request was let in before they were removed, and reaches the service after."""
    admin = org.join(Role.ADMIN)
    person, (key, _) = org.actor_of(admin), org.mint()
    program = replace(person, kind="key", id="key_x", user_id=None, maker_id=admin.id)
    remove_member(actor=org.actor, membership=org.seat(admin))
    for actor in (person, program):
        with pytest.raises(ObjectNotFound):
            create_api_key(actor=actor, project=org.project, name="Late")
        with pytest.raises(ObjectNotFound):
            rotate_key(actor=actor, key=key, last_four=key.last_four)


def test_use_is_noted_and_never_set_back(org: SeededOrganization) -> None:
    key, now = org.mint()[0], timezone.now()
    record_key_usage({key.id: now, "key_unknown": now})
    record_key_usage({key.id: now - timedelta(hours=1)})
    key.refresh_from_db()
    assert key.last_used_at == now


def test_the_playground_has_one_key_per_person_and_project(org: SeededOrganization) -> None:
    first = playground_secret(user=org.owner, project=org.project)
    again = playground_secret(user=org.owner, project=org.project)
    key = ApiKey.objects.get(kind=ApiKeyKind.PLAYGROUND)
    record = published(key)
    assert first == again
    assert secret_form.is_well_formed(first)
    assert record is not None
    assert record.digest == secret_form.digest(first, settings.CONFIG.key_peppers[0].encode())


def test_a_playground_key_is_renewed_before_it_ends(org: SeededOrganization) -> None:
    old = playground_secret(user=org.owner, project=org.project)
    key = ApiKey.objects.get(kind=ApiKeyKind.PLAYGROUND)
    ApiKey.objects.filter(id=key.id).update(expires_at=timezone.now() + timedelta(minutes=5))
    new = playground_secret(user=org.owner, project=org.project)
    key.refresh_from_db()
    assert new != old
    assert key.expires_at is not None
    assert key.expires_at > timezone.now() + LIFETIME / 2
    record = published(key)
    assert record is not None
    assert record.digest == key.digest


def test_viewers_and_strangers_have_no_playground_key(
    org: SeededOrganization, outsider: SeededOrganization
) -> None:
    with pytest.raises(NotPermitted):
        playground_secret(user=org.join(Role.VIEWER), project=org.project)
    with pytest.raises(ObjectNotFound):
        playground_secret(user=outsider.owner, project=org.project)
