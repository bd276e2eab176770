"""What may be done to API keys: verbs, one transaction each."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from control.actor import Actor
from control.audit import services as audit
from control.errors import Conflict
from control.keys import checks, selectors
from control.keys.digest import PREFIX_CHARACTERS, digest_of
from control.keys.models import ApiKey, Mode, Scope
from control.keys.playground import playground_secret
from control.publish.services import Touched, publish
from control.tenants import checks as tenant_checks
from control.tenants import selectors as tenants
from control.tenants.models import Project
from control.tenants.permissions import Action, require
from control.tenants.signals import limits_changed
from control.webhooks.services import emit
from serving.contract import key as secret_form
from serving.contract.budget import limit_budget_id

__all__ = [
    "mint_key",
    "playground_secret",
    "rename_key",
    "revoke_key",
    "set_key_limit",
    "touch_keys",
]


@transaction.atomic
def mint_key(
    *,
    actor: Actor,
    project: Project,
    name: str,
    mode: str = Mode.LIVE,
    scopes: Sequence[str] = (Scope.INFERENCE,),
    models: Sequence[str] | None = None,
    networks: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    spend_limit_nanos: int | None = None,
) -> tuple[ApiKey, str]:
    """Make a key; return it and its secret, which is told now or never.

    Raises Conflict in a suspended organization or an archived project, NotPermitted for the
    scope `manage` where the actor is no admin.
    """
    require(actor, project.organization, Action.MAKE_KEYS)
    if Scope.MANAGE in scopes:
        require(actor, project.organization, Action.MAKE_MANAGE_KEYS)
    project = tenants.open_project(project)
    secret = secret_form.make_secret(checks.mode(mode), secrets.choice)
    key = ApiKey.objects.create(
        organization=project.organization,
        project=project,
        name=tenant_checks.name(name),
        mode=mode,
        digest=digest_of(secret),
        prefix=secret[:PREFIX_CHARACTERS],
        last_four=secret[-4:],
        scopes=checks.scopes(scopes),
        allowed_models=checks.models(models),
        allowed_networks=checks.networks(networks),
        expires_at=checks.expires_at(expires_at, timezone.now()),
        spend_limit_nanos=tenant_checks.spend_limit_nanos(spend_limit_nanos),
        created_by_id=actor.user_id,
    )
    _record(actor, "key.mint", key, name=key.name, scopes=key.scopes, project=project.id)
    emit(
        organization_id=key.organization_id,
        kind="key.created",
        data=_described(key),
        key=key.id,
        now=key.created_at,
    )
    publish([Touched("api_key", key.id)])
    return key, secret


@transaction.atomic
def rename_key(*, actor: Actor, key: ApiKey, name: str) -> ApiKey:
    """Give a key another name. The data plane knows no names."""
    key = _live_key(actor, key)
    before, key.name = key.name, tenant_checks.name(name)
    key.save(update_fields=["name"])
    _record(actor, "key.rename", key, before=before, after=key.name)
    return key


@transaction.atomic
def set_key_limit(*, actor: Actor, key: ApiKey, spend_limit_nanos: int | None) -> ApiKey:
    """Limit what a key spends in a UTC month, in nano-dollars; None lifts the limit."""
    require(actor, key.organization, Action.SET_LIMITS)
    key = selectors.locked_key(key.organization, key.id)
    if key.revoked_at is not None:
        raise Conflict("The API key is revoked.")
    before = key.spend_limit_nanos
    key.spend_limit_nanos = tenant_checks.spend_limit_nanos(spend_limit_nanos)
    key.save(update_fields=["spend_limit_nanos"])
    _record(actor, "key.set_limit", key, before=before, after=spend_limit_nanos)
    limits = {limit_budget_id(key.id): key.spend_limit_nanos}
    limits_changed.send(ApiKey, limits=limits, now=timezone.now())
    publish([Touched("api_key", key.id)])
    return key


@transaction.atomic
def revoke_key(*, actor: Actor, key: ApiKey) -> ApiKey:
    """End a key for good; gateways refuse it within a second. Raises Conflict if it has ended."""
    key = _live_key(actor, key)
    key.revoked_at = timezone.now()
    key.save(update_fields=["revoked_at"])
    _record(actor, "key.revoke", key, name=key.name)
    publish([Touched("api_key", key.id)])
    return key


# Rows are locked in order of their ids, so that two batches never wait for each other.
TOUCH = """
WITH used AS (
    SELECT * FROM unnest(%s::text[], %s::timestamptz[]) AS used (id, at)
), locked AS (
    SELECT id FROM keys_api_key WHERE id IN (SELECT id FROM used)
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE keys_api_key AS key SET last_used_at = used.at FROM used JOIN locked USING (id)
WHERE key.id = used.id AND (key.last_used_at IS NULL OR key.last_used_at < used.at)
"""


@transaction.atomic
def touch_keys(used_at: Mapping[str, datetime]) -> None:
    """Note when keys (by id) were last used; earlier moments and unknown ids change nothing."""
    with connection.cursor() as cursor:
        cursor.execute(TOUCH, [list(used_at), list(used_at.values())])


def _live_key(actor: Actor, key: ApiKey) -> ApiKey:
    require(actor, key.organization, Action.MAKE_KEYS)
    if Scope.MANAGE in key.scopes:
        require(actor, key.organization, Action.MAKE_MANAGE_KEYS)
    key = selectors.locked_key(key.organization, key.id)
    if key.revoked_at is not None:
        raise Conflict("The API key is revoked.")
    return key


def _described(key: ApiKey) -> dict[str, Any]:
    """What a webhook says of a key."""
    return {
        "key_id": key.id,
        "project_id": key.project_id,
        "name": key.name,
        "prefix": key.prefix,
        "last_four": key.last_four,
        "scopes": key.scopes,
        "created_by": key.created_by.email if key.created_by else None,
    }


def _record(actor: Actor, action: str, key: ApiKey, **details: Any) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="api_key",
        target_id=key.id,
        organization_id=key.organization_id,
        details=details,
    )
