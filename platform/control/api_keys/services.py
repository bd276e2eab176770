"""Create, change, rotate and revoke API keys: verbs, one transaction each."""

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from secrets import choice
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from control.api_keys import selectors
from control.api_keys.models import ApiKey, ApiKeyKind, PreviousSecret, Scope
from control.api_keys.notifications import (
    notify_key_created,
    notify_key_revoked,
    notify_key_rotated,
)
from control.api_keys.secrets import PREFIX_CHARACTERS, digest_of, newest_pepper_id
from control.audit import services as audit
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.services import FeedRef, publish
from control.organizations import selectors as tenants
from control.organizations import validators as tenant_checks
from control.organizations.access import actor_for_member
from control.organizations.models import Organization, Project
from control.organizations.signals import limits_changed
from control.permissions import Actor, Permission, require
from control.webhooks.services import send_event
from serving.contract.budget import limit_budget_id
from serving.contract.key import make_secret

FIELDS = {
    "name": "name",
    "scopes": "scopes",
    "models": "allowed_models",
    "networks": "allowed_networks",
    "expires_at": "expires_at",
}
"""What of a key may be changed, and its columns."""
# Rows are locked in order of their ids, so that two batches never wait for each other.
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
"""How many replaced secrets of a key may work at once."""
PARTS = ("digest", "pepper_id", "prefix", "last_four")
LIST_MAX = 100
MAPPED_BITS = 96
"""How long the prefix is of what maps IPv4 into IPv6, `::ffff:0:0/96`."""
MODEL_NAME_MAX = 200
OVERLAP = timedelta(hours=24)
"""How long a replaced secret goes on working, unless told otherwise."""
OVERLAP_MAX = timedelta(days=30)


class DuplicateSubmission(Conflict):
    """A form made its key before; `key` is that."""

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
    action = Permission.API_KEYS_GRANT if Scope.MANAGE in scopes else Permission.API_KEYS_WRITE
    require(actor, project.organization_id, action)
    project = tenants.active_project(project)
    require_current_membership(actor, project.organization, action)
    if form_token and (made := selectors.key_for_token(project.organization, form_token)):
        raise DuplicateSubmission(made)
    key = ApiKey(
        organization=project.organization,
        project=project,
        name=tenant_checks.name(name),
        scopes=checked_scopes(scopes),
        allowed_models=checked_models(models),
        allowed_networks=checked_networks(networks),
        expires_at=checked_expiry(expires_at, timezone.now()),
        spend_limit_nanos=tenant_checks.spend_limit_nanos(spend_limit_nanos),
        form_token=form_token,
        created_by_id=actor.person_id,
    )
    secret = issue_secret(key)
    key.save(force_insert=True)
    record_key_event(actor, "key.mint", key, name=key.name, scopes=key.scopes, project=project.id)
    send_event(
        organization_id=key.organization_id,
        kind="key.created",
        data=_described(key),
        key=key.id,
        now=key.created_at,
    )
    notify_key_created(actor, key)
    publish([FeedRef("api_key", key.id)])
    return key, secret


@transaction.atomic
def update_api_key(*, actor: Actor, key: ApiKey, **changes: Any) -> ApiKey:
    """Change `name`, `scopes`, `models`, `networks` or `expires_at`, all or nothing; None means any
    model, any network, no end. Gateways hold to it within a second.

    Raises InvalidValue naming the first bad one, NotPermitted for the scope `manage` where the
    actor is no admin.
    """
    key = get_user_key(actor, key)
    if Scope.MANAGE in changes.get("scopes", ()):
        require(actor, key.organization_id, Permission.API_KEYS_GRANT)
    new = {FIELDS[name]: _checked(name, value, key) for name, value in changes.items()}
    before = {field: getattr(key, field) for field in new}
    if before == new:
        return key
    for field, value in new.items():
        setattr(key, field, value)
    key.save(update_fields=list(new))
    record_key_event(actor, "key.edit", key, before=_plain(before), after=_plain(new))
    publish([FeedRef("api_key", key.id)])
    return key


@transaction.atomic
def set_key_limit(*, actor: Actor, key: ApiKey, spend_limit_nanos: int | None) -> ApiKey:
    """Limit what a key spends in a UTC month, in nano-dollars; None lifts the limit."""
    require(actor, key.organization_id, Permission.LIMITS_WRITE)
    key = selectors.locked_key(key.organization, key.id)
    if key.revoked_at is not None:
        raise Conflict("The API key is revoked.")
    before = key.spend_limit_nanos
    key.spend_limit_nanos = tenant_checks.spend_limit_nanos(spend_limit_nanos)
    key.save(update_fields=["spend_limit_nanos"])
    record_key_event(actor, "key.set_limit", key, before=before, after=spend_limit_nanos)
    limits = {limit_budget_id(key.id): key.spend_limit_nanos}
    limits_changed.send(ApiKey, limits=limits, now=timezone.now())
    publish([FeedRef("api_key", key.id)])
    return key


@transaction.atomic
def revoke_key(*, actor: Actor, key: ApiKey) -> ApiKey:
    """End a key for good; gateways refuse it within a second. Raises Conflict if it has ended."""
    key = get_active_key(actor, key)
    key.revoked_at = timezone.now()
    key.save(update_fields=["revoked_at"])
    record_key_event(actor, "key.revoke", key, name=key.name)
    notify_key_revoked(actor, key)
    publish([FeedRef("api_key", key.id)])
    return key


@transaction.atomic
def record_key_usage(used_at: Mapping[str, datetime]) -> None:
    """Note when keys (by id) were last used; earlier moments and unknown ids change nothing."""
    with connection.cursor() as cursor:
        cursor.execute(RECORD_USAGE, [list(used_at), list(used_at.values())])


def _checked(name: str, value: Any, key: ApiKey) -> Any:
    """Return a wanted value as its column takes it. Raises InvalidValue."""
    match name:
        case "name":
            return tenant_checks.name(value)
        case "scopes":
            return checked_scopes(value)
        case "models":
            return checked_models(value)
        case "networks":
            return checked_networks(value)
    # An end that is over may stay as it is: the rest of the key can be changed all the same.
    return value if value == key.expires_at else checked_expiry(value, timezone.now())


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


def require_key_access(actor: Actor, key: ApiKey) -> None:
    """Let an actor pass who may change a key: one of their own, or, with an admin's right, any.

    Raises ObjectNotFound in another organization, else NotPermitted.
    """
    require(actor, key.organization_id, Permission.API_KEYS_WRITE)
    if Scope.MANAGE in key.scopes:
        require(actor, key.organization_id, Permission.API_KEYS_GRANT)
    if actor.person_id is None or key.created_by_id != actor.person_id:
        try:
            require(actor, key.organization_id, Permission.API_KEYS_GRANT)
        except NotPermitted as refused:
            words = "You can change only API keys that you created. Ask an owner or admin."
            raise NotPermitted(words) from refused


def require_current_membership(
    actor: Actor, organization: Organization, action: Permission
) -> None:
    """Let an actor pass whose person still has a seat, and a role that allows `action`.

    Call it with the organization's row locked, as whoever removes a member or changes a role locks
    it: then no key outlives the right that it was made with. Raises ObjectNotFound and
    NotPermitted.
    """
    if actor.person_id is not None and not actor.is_operator:
        require(
            actor_for_member(tenants.membership(actor.person_id, organization.id)),
            organization.id,
            action,
        )


def get_active_key(actor: Actor, key: ApiKey) -> ApiKey:
    """Return a key that the actor may change, its row locked. Raises Conflict if it has ended."""
    require(actor, key.organization_id, Permission.ORGANIZATION_READ)
    key = selectors.locked_key(key.organization, key.id)
    require_key_access(actor, key)
    if key.revoked_at is not None:
        raise Conflict("The API key is revoked.")
    return key


def get_user_key(actor: Actor, key: ApiKey) -> ApiKey:
    """Return a key that the actor may change, as `live_key` does; the console's own playground keys
    change by themselves alone. Raises Conflict for those."""
    found = get_active_key(actor, key)
    if found.kind != ApiKeyKind.STANDARD:
        raise Conflict("The key of the console's playground can be revoked, and nothing else.")
    return found


def record_key_event(actor: Actor, action: str, key: ApiKey, **details: Any) -> None:
    """Write down what was done to a key."""
    audit.record(
        actor=actor,
        action=action,
        target_kind="api_key",
        target_id=key.id,
        organization_id=key.organization_id,
        details=details,
    )


def issue_secret(key: ApiKey) -> str:
    """Set what is kept of a new secret, and return it."""
    secret = make_secret(choice)
    key.digest, key.pepper_id = digest_of(secret), newest_pepper_id()
    key.prefix, key.last_four = secret[:PREFIX_CHARACTERS], secret[-4:]
    return secret


@transaction.atomic
def rotate_key(
    *, actor: Actor, key: ApiKey, last_four: str, old_secret_ends_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Give a key a new secret; return it, told now or never. The one before works until a moment,
    a day from now by default; those replaced earlier until theirs. Who rotates a key knows its
    secret, and so it is theirs from then on: the person's behind the key, where a key rotates one.

    Raises Conflict where `last_four` are not those of the secret to replace: then it was replaced
    already, perhaps by the same wish sent twice.
    """
    organization = tenants.locked_organization(key.organization_id)
    require_current_membership(actor, organization, Permission.API_KEYS_WRITE)
    key = get_user_key(actor, key)
    if key.last_four != last_four:
        raise Conflict(f"The secret that ends with {last_four} was replaced already.")
    now = timezone.now()
    ends_at = checked_secret_end(old_secret_ends_at, now)
    PreviousSecret.objects.filter(key=key, ends_at__lte=now).delete()
    if ends_at > now:
        _keep_previous(key, ends_at)
    before, maker, secret = key.masked, key.created_by, issue_secret(key)
    key.created_by_id = actor.person_id or key.created_by_id
    key.save(update_fields=[*PARTS, "created_by"])
    record_key_event(
        actor, "key.rotate", key, before=before, after=key.masked,
        old_secret_ends_at=ends_at.isoformat(),
    )  # fmt: skip
    notify_key_rotated(actor, key, maker)
    publish([FeedRef("api_key", key.id)])
    return key, secret


@transaction.atomic
def revoke_previous_secrets(*, actor: Actor, key: ApiKey) -> ApiKey:
    """End all replaced secrets of a key; gateways refuse them within a second.

    Raises Conflict where none works any more.
    """
    key = get_user_key(actor, key)
    ended = selectors.previous_secrets(key, timezone.now())
    if not ended:
        raise Conflict("No old secret of the API key works any more.")
    PreviousSecret.objects.filter(key=key).delete()
    record_key_event(actor, "key.end_old_secrets", key, ended=[secret.masked for secret in ended])
    publish([FeedRef("api_key", key.id)])
    return key


def _keep_previous(key: ApiKey, ends_at: datetime) -> None:
    if PreviousSecret.objects.filter(key=key).count() >= PREVIOUS_SECRETS_MAX:
        raise Conflict(
            f"{PREVIOUS_SECRETS_MAX} previous secrets of the API key still work: revoke them first."
        )
    PreviousSecret.objects.create(
        key=key,
        made_by_id=key.created_by_id,
        ends_at=ends_at,
        **{part: getattr(key, part) for part in PARTS},
    )


def checked_scopes(values: Sequence[str]) -> list[str]:
    """Return the scopes in a fixed order, each once. Raises InvalidValue."""
    if not values or not set(values) <= set(Scope.values):
        raise InvalidValue(f"scopes must be some of {', '.join(Scope.values)}.", param="scopes")
    return [scope for scope in Scope.values if scope in values]


def checked_models(values: Sequence[str] | None) -> list[str] | None:
    """Return public ids of models, None for any. Raises InvalidValue."""
    if values is None:
        return None
    if not 0 < len(values) <= LIST_MAX or not all(0 < len(v) <= MODEL_NAME_MAX for v in values):
        raise InvalidValue(f"models must name 1 to {LIST_MAX} models.", param="models")
    return sorted(set(values))


def checked_networks(values: Sequence[str] | None) -> list[str] | None:
    """Return networks in CIDR form, None for any. Raises InvalidValue."""
    if values is None:
        return None
    if not 0 < len(values) <= LIST_MAX:
        raise InvalidValue(f"networks must name 1 to {LIST_MAX} networks.", param="networks")
    try:
        return sorted({str(_network(value)) for value in values})
    except ValueError as error:
        raise InvalidValue(f"networks must be in CIDR form: {error}.", param="networks") from error


def _network(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a network; one of IPv4 mapped into IPv6 as IPv4's, as which its clients are known."""
    network = ipaddress.ip_network(value)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < MAPPED_BITS:
        return network
    return ipaddress.ip_network(f"{mapped}/{network.prefixlen - MAPPED_BITS}")


def checked_expiry(value: datetime | None, now: datetime) -> datetime | None:
    """Return when the key shall end: later than `now`, None for never. Raises InvalidValue."""
    if value is not None and value <= now:
        raise InvalidValue("expires_at must be in the future.", param="expires_at")
    return value


def checked_secret_end(value: datetime | None, now: datetime) -> datetime:
    """Return when a replaced secret ends, `now` or a while later. Raises InvalidValue."""
    if value is None:
        return now + OVERLAP
    if value > now + OVERLAP_MAX:
        words = f"old_secret_ends_at must be within {OVERLAP_MAX.days} days."
        raise InvalidValue(words, param="old_secret_ends_at")
    return max(value, now)
