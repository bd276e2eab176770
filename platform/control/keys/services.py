"""What may be done to API keys: verbs, one transaction each."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from control.actor import Actor
from control.errors import Conflict
from control.feed.services import FeedRef, publish
from control.keys import checks, selectors
from control.keys.live import live_key, peoples_key, record, require_current_seat
from control.keys.models import ApiKey, Scope
from control.keys.news import tell_of_ended_key, tell_of_new_key
from control.keys.playground import playground_secret
from control.keys.secrets import end_old_secrets, give_secret, rotate_key
from control.tenants import checks as tenant_checks
from control.tenants import selectors as tenants
from control.tenants.models import Project
from control.tenants.permissions import Action, require
from control.tenants.signals import limits_changed
from control.webhooks.services import send_event
from serving.contract.budget import limit_budget_id

__all__ = [
    "edit_key",
    "end_old_secrets",
    "mint_key",
    "playground_secret",
    "revoke_key",
    "rotate_key",
    "set_key_limit",
    "touch_keys",
]


FIELDS = {
    "name": "name",
    "scopes": "scopes",
    "models": "allowed_models",
    "networks": "allowed_networks",
    "expires_at": "expires_at",
}
"""What of a key may be changed, and its columns."""


class FormSentTwice(Conflict):
    """A form made its key before; `key` is that."""

    def __init__(self, key: ApiKey) -> None:
        super().__init__("This key was made already.")
        self.key = key


@transaction.atomic
def mint_key(
    *,
    actor: Actor,
    project: Project,
    name: str,
    scopes: Sequence[str] = (Scope.INFERENCE,),
    models: Sequence[str] | None = None,
    networks: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    spend_limit_nanos: int | None = None,
    form_token: str | None = None,
) -> tuple[ApiKey, str]:
    """Make a key; return it and its secret, which is told now or never. A key that a key makes is
    of the same person, and ends with their seat.

    Raises FormSentTwice where a form made its key before, Conflict in a suspended organization or
    an archived project, NotPermitted for the scope `manage` where the actor is no admin.
    """
    action = Action.MAKE_MANAGE_KEYS if Scope.MANAGE in scopes else Action.MAKE_KEYS
    require(actor, project.organization, action)
    project = tenants.open_project(project)
    require_current_seat(actor, project.organization, action)
    if form_token and (made := selectors.key_of_form(project.organization, form_token)):
        raise FormSentTwice(made)
    key = ApiKey(
        organization=project.organization,
        project=project,
        name=tenant_checks.name(name),
        scopes=checks.scopes(scopes),
        allowed_models=checks.models(models),
        allowed_networks=checks.networks(networks),
        expires_at=checks.expires_at(expires_at, timezone.now()),
        spend_limit_nanos=tenant_checks.spend_limit_nanos(spend_limit_nanos),
        form_token=form_token,
        created_by_id=actor.person_id,
    )
    secret = give_secret(key)
    key.save(force_insert=True)
    record(actor, "key.mint", key, name=key.name, scopes=key.scopes, project=project.id)
    send_event(
        organization_id=key.organization_id,
        kind="key.created",
        data=_described(key),
        key=key.id,
        now=key.created_at,
    )
    tell_of_new_key(actor, key)
    publish([FeedRef("api_key", key.id)])
    return key, secret


@transaction.atomic
def edit_key(*, actor: Actor, key: ApiKey, **changes: Any) -> ApiKey:
    """Change `name`, `scopes`, `models`, `networks` or `expires_at`, all or nothing; None means any
    model, any network, no end. Gateways hold to it within a second.

    Raises InvalidValue naming the first bad one, NotPermitted for the scope `manage` where the
    actor is no admin.
    """
    key = peoples_key(actor, key)
    if Scope.MANAGE in changes.get("scopes", ()):
        require(actor, key.organization, Action.MAKE_MANAGE_KEYS)
    new = {FIELDS[name]: _checked(name, value, key) for name, value in changes.items()}
    before = {field: getattr(key, field) for field in new}
    if before == new:
        return key
    for field, value in new.items():
        setattr(key, field, value)
    key.save(update_fields=list(new))
    record(actor, "key.edit", key, before=_plain(before), after=_plain(new))
    publish([FeedRef("api_key", key.id)])
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
    record(actor, "key.set_limit", key, before=before, after=spend_limit_nanos)
    limits = {limit_budget_id(key.id): key.spend_limit_nanos}
    limits_changed.send(ApiKey, limits=limits, now=timezone.now())
    publish([FeedRef("api_key", key.id)])
    return key


@transaction.atomic
def revoke_key(*, actor: Actor, key: ApiKey) -> ApiKey:
    """End a key for good; gateways refuse it within a second. Raises Conflict if it has ended."""
    key = live_key(actor, key)
    key.revoked_at = timezone.now()
    key.save(update_fields=["revoked_at"])
    record(actor, "key.revoke", key, name=key.name)
    tell_of_ended_key(actor, key)
    publish([FeedRef("api_key", key.id)])
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


def _checked(name: str, value: Any, key: ApiKey) -> Any:
    """Return a wanted value as its column takes it. Raises InvalidValue."""
    match name:
        case "name":
            return tenant_checks.name(value)
        case "scopes":
            return checks.scopes(value)
        case "models":
            return checks.models(value)
        case "networks":
            return checks.networks(value)
    # An end that is over may stay as it is: the rest of the key can be changed all the same.
    return value if value == key.expires_at else checks.expires_at(value, timezone.now())


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as the audit keeps them."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in fields.items()
    }


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
