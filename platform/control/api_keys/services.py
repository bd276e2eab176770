"""Create, change, rotate and revoke API keys, in one transaction each."""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from secrets import choice
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from control.api_keys import selectors
from control.api_keys.models import (
    PREFIX_CHARACTERS,
    SCOPES,
    ApiKey,
    ApiKeyKind,
    PreviousSecret,
    Scope,
    digest_of,
    newest_pepper_id,
    permissions_of,
)
from control.api_keys.notifications import (
    notify_key_created,
    notify_key_revoked,
    notify_key_rotated,
)
from control.audit import services as audit
from control.db.models import CredentialState
from control.db.row_changes import differences, plain_values, snapshot
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.services import FeedRef, publish
from control.organizations import selectors as tenants
from control.organizations import validators as tenant_checks
from control.organizations.models import Organization, Project
from control.organizations.signals import limits_changed
from control.permissions import Actor, Permission, require
from control.webhooks.services import send_event
from serving.contract.api_key import make_secret
from serving.contract.budget import limit_budget_id

# Rows are locked in the order of their ids, so that two batches never deadlock.
RECORD_USAGE = """
WITH used AS (
    SELECT * FROM unnest(%s::text[], %s::timestamptz[]) AS used (id, at)
), locked AS (
    SELECT id FROM api_keys_api_key WHERE id IN (SELECT id FROM used)
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE api_keys_api_key AS key SET last_used_at = used.at FROM used JOIN locked USING (id)
WHERE key.id = used.id AND (key.last_used_at IS NULL OR key.last_used_at < used.at)
"""
PREVIOUS_SECRETS_MAX = 3
"""The number of replaced secrets of a key that may work at once."""
CREATED_FIELDS = (
    "name", "project", "kind", "scopes", "allowed_models", "allowed_networks", "expires_at",
    "spend_limit_nanos",
)  # fmt: skip
PARTS = ("digest", "pepper_id", "prefix", "last_four")
"""The fields that a key shares with `PreviousSecret`."""
LIST_MAX = 100
MAPPED_BITS = 96
"""Prefix length of the IPv4-mapped IPv6 addresses, `::ffff:0:0/96`."""
MODEL_NAME_MAX = 200
OVERLAP = timedelta(hours=24)
"""The time for which a replaced secret works by default."""
OVERLAP_MAX = timedelta(days=30)


class DuplicateSubmission(Conflict):
    """A form was sent twice; `key` is the key that it created before."""

    def __init__(self, key: ApiKey) -> None:
        super().__init__("This key was made already.")
        self.key = key


@transaction.atomic
def create_api_key(
    *,
    actor: Actor,
    project: Project,
    name: str,
    scopes: Sequence[str] = (Scope.INFERENCE,),
    allowed_models: Sequence[str] | None = None,
    allowed_networks: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    spend_limit_nanos: int | None = None,
    form_token: str | None = None,
) -> tuple[ApiKey, str]:
    """Create a key; return it and its secret, which is not stored. A key that a key creates belongs
    to the same person and ends with their membership.

    Raises DuplicateSubmission if the form created its key before, Conflict in a suspended
    organization or an archived project, NotPermitted for a scope that the actor may not give.
    """
    require_scopes(actor, project.organization_id, scopes)
    project = tenants.active_project(project)
    require_current_membership(actor, project.organization, scopes)
    if form_token and (existing := selectors.key_for_token(project.organization, form_token)):
        raise DuplicateSubmission(existing)
    key = ApiKey(
        organization=project.organization,
        project=project,
        name=tenant_checks.name(name),
        scopes=checked_scopes(scopes),
        allowed_models=checked_models(allowed_models),
        allowed_networks=checked_networks(allowed_networks),
        expires_at=checked_expiry(expires_at, timezone.now()),
        spend_limit_nanos=tenant_checks.spend_limit_nanos(spend_limit_nanos),
        form_token=form_token,
        created_by_id=actor.person_id,
    )
    secret = issue_secret(key)
    key.save(force_insert=True)
    record_key_created(actor, key)
    send_event(
        organization_id=key.organization_id,
        event_type="api_key.created",
        data=_event_data(key),
        key=key.id,
        now=key.created_at,
    )
    notify_key_created(actor, key)
    publish([FeedRef("api_key", key.id)])
    return key, secret


@transaction.atomic
def update_api_key(*, actor: Actor, key: ApiKey, **changes: Any) -> ApiKey:
    """Change `name`, `scopes`, `allowed_models`, `allowed_networks` or `expires_at`, all or
    nothing. None means any model, any network, or no expiry. Gateways apply the change within a
    second.

    Raises InvalidValue for the first invalid value, NotPermitted for a scope that the actor may not
    give.
    """
    key = get_user_key(actor, key)
    if scopes := changes.get("scopes"):
        require_scopes(actor, key.organization_id, scopes)
    new = {name: _checked(name, value, key) for name, value in changes.items()}
    before = {field: getattr(key, field) for field in new}
    if before == new:
        return key
    for field, value in new.items():
        setattr(key, field, value)
    key.save(update_fields=list(new))
    audit.record_about(actor, "api_key.updated", key, **differences(before, new))
    publish([FeedRef("api_key", key.id)])
    return key


@transaction.atomic
def set_key_limit(*, actor: Actor, key: ApiKey, spend_limit_nanos: int | None) -> ApiKey:
    """Set a key's spending limit per UTC month, in nano-dollars; None removes it."""
    require(actor, key.organization_id, Permission.LIMITS_WRITE)
    key = selectors.locked_key(key.organization, key.id)
    require_unrevoked(key)
    before = key.spend_limit_nanos
    key.spend_limit_nanos = tenant_checks.spend_limit_nanos(spend_limit_nanos)
    key.save(update_fields=["spend_limit_nanos"])
    limit = differences({"spend_limit_nanos": before}, {"spend_limit_nanos": spend_limit_nanos})
    audit.record_about(actor, "api_key.limit_set", key, **limit)
    limits = {limit_budget_id(key.id): key.spend_limit_nanos}
    limits_changed.send(ApiKey, limits=limits, now=timezone.now())
    publish([FeedRef("api_key", key.id)])
    return key


@transaction.atomic
def revoke_key(*, actor: Actor, key: ApiKey) -> ApiKey:
    """Revoke a key; gateways refuse it within a second. Raises Conflict if it was revoked."""
    key = get_active_key(actor, key)
    now = timezone.now()
    before, key.revoked_at = key.state(now), now
    key.save(update_fields=["revoked_at"])
    audit.record_about(actor, "api_key.revoked", key, name=key.name)
    notify_key_revoked(actor, key, before)
    publish([FeedRef("api_key", key.id)])
    return key


@transaction.atomic
def record_key_usage(used_at: Mapping[str, datetime]) -> None:
    """Record when keys (by id) were last used; earlier times and unknown ids change nothing."""
    with connection.cursor() as cursor:
        cursor.execute(RECORD_USAGE, [list(used_at), list(used_at.values())])


def _checked(name: str, value: Any, key: ApiKey) -> Any:
    """Return a new value as its column stores it. Raises InvalidValue."""
    match name:
        case "name":
            return tenant_checks.name(value)
        case "scopes":
            return checked_scopes(value)
        case "allowed_models":
            return checked_models(value)
        case "allowed_networks":
            return checked_networks(value)
    # An expiry in the past may stay, so that the other settings can be changed.
    return value if value == key.expires_at else checked_expiry(value, timezone.now())


def _event_data(key: ApiKey) -> dict[str, Any]:
    """Return the data of the webhook event `api_key.created`."""
    return {
        "key_id": key.id,
        "project_id": key.project_id,
        "name": key.name,
        "prefix": key.prefix,
        "last_four": key.last_four,
        "scopes": key.scopes,
        "created_by": key.created_by.email if key.created_by else None,
    }


def require_key_access(actor: Actor, key: ApiKey) -> None:
    """Check that an actor may change a key: their own, or any key for an admin. They must be able
    to give its scopes, since whoever rotates a key gets its secret.

    Raises ObjectNotFound for another organization's key, NotPermitted otherwise.
    """
    require_scopes(actor, key.organization_id, key.scopes)
    if actor.person_id is None or key.created_by_id != actor.person_id:
        try:
            require(actor, key.organization_id, Permission.API_KEYS_GRANT)
        except NotPermitted as refused:
            message = "You can change only API keys that you created. Ask an owner or admin."
            raise NotPermitted(message) from refused


def require_scopes(actor: Actor, organization_id: str, scopes: Collection[str]) -> None:
    """Check that an actor may give a key these scopes: a member or key has each permission that
    they give. Raises ObjectNotFound and NotPermitted."""
    require(actor, organization_id, Permission.API_KEYS_WRITE)
    if not actor.is_operator:
        for permission in sorted(permissions_of(scopes)):
            require(actor, organization_id, permission)


def require_current_membership(
    actor: Actor, organization: Organization, scopes: Collection[str]
) -> None:
    """Check that the actor's user is still a member, with a role that may give these scopes.

    Call it with the organization's row locked. Removing a member and changing a role lock it too,
    so no key outlives the right that it was created with. Raises ObjectNotFound and NotPermitted.
    """
    if actor.person_id is not None and not actor.is_operator:
        membership = tenants.membership(actor.person_id, organization.id)
        require_scopes(Actor.for_member(membership), organization.id, scopes)


def get_active_key(actor: Actor, key: ApiKey) -> ApiKey:
    """Return a key that the actor may change, with its row locked. Raises Conflict if it was
    revoked."""
    require(actor, key.organization_id, Permission.ORGANIZATION_READ)
    key = selectors.locked_key(key.organization, key.id)
    require_key_access(actor, key)
    require_unrevoked(key)
    return key


def require_unrevoked(key: ApiKey) -> None:
    """Raise Conflict for a revoked key: it never works again, and nothing of it changes."""
    if key.state(timezone.now()) == CredentialState.REVOKED:
        raise Conflict("The API key is revoked.")


def get_user_key(actor: Actor, key: ApiKey) -> ApiKey:
    """Return a key that the actor may change, as `get_active_key` does. Raises Conflict for a
    playground key, which only the console changes."""
    key = get_active_key(actor, key)
    if key.kind != ApiKeyKind.STANDARD:
        raise Conflict("The playground's key can only be revoked.")
    return key


def record_key_created(actor: Actor, key: ApiKey) -> None:
    """Record a new key with all that was set."""
    audit.record_about(actor, "api_key.created", key, **snapshot(key, CREATED_FIELDS))


def issue_secret(key: ApiKey) -> str:
    """Generate a secret, set its digest and visible parts on the key, and return it."""
    secret = make_secret(choice)
    key.digest, key.pepper_id = digest_of(secret), newest_pepper_id()
    key.prefix, key.last_four = secret[:PREFIX_CHARACTERS], secret[-4:]
    return secret


@transaction.atomic
def rotate_key(
    *,
    actor: Actor,
    key: ApiKey,
    last_four: str,
    previous_secret_ends_at: datetime | None = None,
    **changes: datetime | None,
) -> tuple[ApiKey, str]:
    """Replace a key's secret; return the key and the new secret, which is not stored. The old
    secret works until `previous_secret_ends_at`, a day from now by default; secrets replaced
    earlier keep their own end. The person who rotates a key knows its secret and so becomes its
    creator; if a key rotates another, that is the person behind it.

    `expires_at`, None for never, is the key's new expiry. An expired key needs one, and its old
    secrets stay refused.

    Raises Conflict for an expired key without a new expiry, and if `last_four` does not match the
    current secret, which was then replaced already, perhaps by the same request sent twice.
    """
    organization = tenants.locked_organization(key.organization_id)
    require_current_membership(actor, organization, key.scopes)
    key = get_user_key(actor, key)
    if key.last_four != last_four:
        raise Conflict(f"The secret that ends with {last_four} was already replaced.")
    now, expires_at = timezone.now(), key.expires_at
    ends_at = _replace_expiry(key, changes, checked_secret_end(previous_secret_ends_at, now), now)
    PreviousSecret.objects.filter(key=key, ends_at__lte=now).delete()
    if ends_at > now:
        _keep_previous(key, ends_at)
    before, maker = key.masked, key.created_by
    secret = issue_secret(key)
    key.created_by_id = actor.person_id or key.created_by_id
    key.save(update_fields=[*PARTS, "created_by", "expires_at"])
    values = differences(
        {"secret": before, "expires_at": expires_at},
        {"secret": key.masked, "expires_at": key.expires_at},
    )
    ends = plain_values({"previous_secret_ends_at": ends_at})
    audit.record_about(actor, "api_key.rotated", key, **values, **ends)
    notify_key_rotated(actor, key, maker)
    publish([FeedRef("api_key", key.id)])
    return key, secret


@transaction.atomic
def revoke_previous_secrets(*, actor: Actor, key: ApiKey) -> ApiKey:
    """Revoke all replaced secrets of a key; gateways refuse them within a second.

    Raises Conflict if none works any more.
    """
    key = get_user_key(actor, key)
    ended = selectors.previous_secrets(key, timezone.now())
    if not ended:
        raise Conflict("The API key has no old secrets that still work.")
    PreviousSecret.objects.filter(key=key).delete()
    audit.record_about(
        actor, "api_key.previous_secrets_revoked", key, ended=[secret.masked for secret in ended]
    )
    publish([FeedRef("api_key", key.id)])
    return key


def _replace_expiry(
    key: ApiKey, changes: Mapping[str, datetime | None], ends_at: datetime, now: datetime
) -> datetime:
    """Set the new expiry of a key whose secret is replaced, and return when the old secret ends:
    an expired key's secrets are refused already and end now."""
    is_expired = key.state(now) == CredentialState.EXPIRED
    if is_expired and "expires_at" not in changes:
        raise Conflict(
            "The API key is expired: rotate it with a new expires_at, or null for never.",
            param="expires_at",
        )
    if "expires_at" in changes:
        key.expires_at = checked_expiry(changes["expires_at"], now)
    if not is_expired:
        return ends_at
    PreviousSecret.objects.filter(key=key).delete()
    return now


def _keep_previous(key: ApiKey, ends_at: datetime) -> None:
    if PreviousSecret.objects.filter(key=key).count() >= PREVIOUS_SECRETS_MAX:
        raise Conflict(
            f"{PREVIOUS_SECRETS_MAX} previous secrets of the API key still work: revoke them first."
        )
    PreviousSecret.objects.create(
        key=key,
        made_by_id=key.created_by_id,
        ends_at=ends_at,
        **{field: getattr(key, field) for field in PARTS},
    )


def checked_scopes(values: Sequence[str]) -> list[str]:
    """Return the scopes in a fixed order, without duplicates. Raises InvalidValue."""
    if not values or not set(values) <= set(SCOPES):
        raise InvalidValue(f"scopes must be some of {', '.join(SCOPES)}.", param="scopes")
    return [scope for scope in SCOPES if scope in values]


def checked_models(values: Sequence[str] | None) -> list[str] | None:
    """Return public model ids; None means any. Raises InvalidValue."""
    if values is None:
        return None
    if not 0 < len(values) <= LIST_MAX or not all(0 < len(v) <= MODEL_NAME_MAX for v in values):
        raise InvalidValue(
            f"allowed_models must name 1 to {LIST_MAX} models.", param="allowed_models"
        )
    return sorted(set(values))


def checked_networks(values: Sequence[str] | None) -> list[str] | None:
    """Return networks in CIDR form; None means any. Raises InvalidValue."""
    if values is None:
        return None
    if not 0 < len(values) <= LIST_MAX:
        raise InvalidValue(
            f"allowed_networks must name 1 to {LIST_MAX} networks.", param="allowed_networks"
        )
    try:
        return sorted({str(_network(value)) for value in values})
    except ValueError as error:
        raise InvalidValue(
            f"allowed_networks must be in CIDR form: {error}.", param="allowed_networks"
        ) from error


def _network(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a network. An IPv4-mapped IPv6 network becomes IPv4, as client addresses are IPv4."""
    network = ipaddress.ip_network(value)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < MAPPED_BITS:
        return network
    return ipaddress.ip_network(f"{mapped}/{network.prefixlen - MAPPED_BITS}")


def checked_expiry(value: datetime | None, now: datetime) -> datetime | None:
    """Return the expiry, later than `now`; None means never. Raises InvalidValue."""
    if value is not None and value <= now:
        raise InvalidValue("expires_at must be in the future.", param="expires_at")
    return value


def checked_secret_end(value: datetime | None, now: datetime) -> datetime:
    """Return when a replaced secret ends, `now` or later. Raises InvalidValue."""
    if value is None:
        return now + OVERLAP
    if value > now + OVERLAP_MAX:
        message = f"previous_secret_ends_at must be within {OVERLAP_MAX.days} days."
        raise InvalidValue(message, param="previous_secret_ends_at")
    return max(value, now)
