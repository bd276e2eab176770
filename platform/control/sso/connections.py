"""SSO settings of an organization: the identity provider, enforcement, role mapping, SCIM token."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext

from control.accounts.models import User
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.feed.services import FeedRef
from control.organizations.models import Membership, Organization
from control.organizations.signals import (
    DeletionEffect,
    organization_deleted,
    organization_deletion_previewed,
)
from control.permissions import Actor, Permission, can, require, require_operator
from control.sso import selectors
from control.sso.models import (
    DOMAIN_MAX,
    GRANTABLE,
    Protocol,
    ScimGroup,
    ScimToken,
    ScimUser,
    SsoConnection,
    SsoDomain,
    SsoIdentity,
    encrypted_secret,
    new_token,
    token_digest,
)
from control.sso.oidc import discover
from control.sso.reclaim import end_sessions
from control.sso.saml import read_metadata
from control.sso.scim_members import sync_roles

NOTHING_SET_UP: dict[str, Any] = {
    "issuer": "", "client_id": "", "sealed_secret": "", "metadata_url": "", "provider": {},
}  # fmt: skip
DOMAIN = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])")
DOMAINS_MAX = 20
MAPPED_MAX = 100
CLAIM_MAX = 200
OF_ORGANIZATIONS = (SsoConnection, SsoDomain, SsoIdentity, ScimToken, ScimGroup, ScimUser)


def create_oidc_connection(
    *, actor: Actor, organization: Organization, issuer: str, client_id: str, client_secret: str
) -> SsoConnection:
    """Set up OpenID Connect. An empty `client_secret` keeps the current secret of the same issuer.

    The provider's endpoints are discovered from the issuer. Raises InvalidValue.
    """
    require(actor, organization.id, Permission.SSO_WRITE)
    client_id = checked_text(client_id, "client_id", longest=255)
    secret = client_secret.strip()
    document = discover(issuer)  # This takes seconds, so no transaction is open.
    current = selectors.connection(organization)
    is_same_issuer = current.protocol == Protocol.OIDC and current.issuer == document["issuer"]
    if not client_id or not (secret or (is_same_issuer and current.sealed_secret)):
        raise InvalidValue("Enter a client ID and its secret.", param="client_secret")
    sealed = encrypted_secret(organization, secret) if secret else current.sealed_secret
    return _create_connection(
        actor, organization, Protocol.OIDC,
        issuer=document["issuer"], client_id=client_id, sealed_secret=sealed, provider=document,
    )  # fmt: skip


def create_saml_connection(
    *, actor: Actor, organization: Organization, metadata_url: str, metadata: str
) -> SsoConnection:
    """Set up SAML with the provider's metadata, fetched from `metadata_url` or given as XML.

    Raises InvalidValue.
    """
    require(actor, organization.id, Permission.SSO_WRITE)
    description = read_metadata(url=metadata_url.strip(), xml=metadata)
    return _create_connection(
        actor, organization, Protocol.SAML,
        issuer=description["entity_id"], metadata_url=metadata_url.strip(), provider=description,
    )  # fmt: skip


@transaction.atomic
def _create_connection(
    actor: Actor, organization: Organization, protocol: Protocol, **fields: Any
) -> SsoConnection:
    """Save the connection. Another provider has other subjects, so the identities of the previous
    one are deleted, and an owner must sign in before SSO can be enforced."""
    connection = selectors.locked_connection(organization)
    before = (connection.protocol, connection.issuer)
    if before != (protocol, fields["issuer"]):
        _check_not_enforced(connection)
        SsoIdentity.objects.filter(organization=organization).delete()
    for field, value in {**NOTHING_SET_UP, **fields, "protocol": protocol}.items():
        setattr(connection, field, value)
    if not connection.is_enforced:
        connection.is_tried = False
    connection.save()
    _record(
        actor, "sso.connection_created", connection.organization,
        before={"provider": " ".join(before).strip()},
        after={"provider": f"{protocol} {connection.issuer}"},
        client_id=connection.client_id,
    )  # fmt: skip
    return connection


@transaction.atomic
def remove_provider(*, actor: Actor, organization: Organization) -> None:
    """Remove the identity provider. Raises Conflict while SSO is enforced."""
    require(actor, organization.id, Permission.SSO_WRITE)
    connection = selectors.locked_connection(organization)
    _check_not_enforced(connection)
    _record(
        actor,
        "sso.connection_deleted",
        connection.organization,
        before={"provider": f"{connection.protocol} {connection.issuer}"},
    )
    SsoIdentity.objects.filter(organization=organization).delete()
    for field, value in {**NOTHING_SET_UP, "protocol": "", "is_tried": False}.items():
        setattr(connection, field, value)
    connection.save()


@transaction.atomic
def set_role_mapping(
    *,
    actor: Actor,
    organization: Organization,
    role_claim: str,
    role_map: Mapping[str, str],
    default_role: str,
) -> SsoConnection:
    """Map the provider's groups to roles. People without a mapped group get `default_role`, or no
    membership if it is empty. Raises InvalidValue."""
    require(actor, organization.id, Permission.MEMBERS_WRITE)
    connection = selectors.locked_connection(organization)
    before = _roles(connection)
    connection.role_claim = checked_text(role_claim, "role_claim", longest=CLAIM_MAX)
    connection.role_map = checked_role_map(role_map)
    if default_role:
        checked_role(default_role, param="default_role")
    connection.default_role = default_role
    connection.save(update_fields=["role_claim", "role_map", "default_role"])
    sync_roles(selectors.scim_users(organization).filter(is_active=True))
    _record(
        actor,
        "sso.role_mapping_updated",
        connection.organization,
        before=before,
        after=_roles(connection),
    )
    return connection


@transaction.atomic
def enforce(*, actor: Actor, organization: Organization) -> int:
    """Require SSO for addresses of the verified domains. The sessions of these users end, except
    the actor's. Return the number of users.

    Raises Conflict until an owner has signed in with the provider, and without a verified domain.
    """
    require(actor, organization.id, Permission.SSO_WRITE)
    connection = selectors.locked_connection(organization)
    if not connection.is_set_up or not connection.is_tried:
        raise Conflict(
            "Sign in with this provider once first: an owner must have signed in with it."
        )
    names = selectors.verified_domains(organization)
    if not names:
        raise Conflict("Verify a domain first: SSO is enforced for its addresses.")
    if connection.is_enforced:
        raise Conflict("SSO is already enforced.")
    users = selectors.people_of(names)
    connection.is_enforced = True
    connection.save(update_fields=["is_enforced"])
    for user in users:
        if user.pk != actor.user_id:
            end_sessions(user)
    _record(
        actor, "sso.enforced", connection.organization, domains=sorted(names), people=len(users)
    )
    return len(users)


@transaction.atomic
def stop_enforcing(*, actor: Actor, organization: Organization) -> None:
    """Make SSO optional. Owners may do so, and operators if an organization's provider is broken.
    Raises Conflict if it is optional already."""
    if actor.is_operator:
        require_operator(actor, Permission.CUSTOMERS_WRITE)
    else:
        require(actor, organization.id, Permission.SSO_WRITE)
    connection = selectors.locked_connection(organization)
    if not connection.is_enforced:
        raise Conflict("SSO is already optional.")
    connection.is_enforced = False
    connection.save(update_fields=["is_enforced"])
    _record(actor, "sso.enforcement_stopped", connection.organization)


@transaction.atomic
def unlink_identity(*, actor: Actor, organization: Organization, user: User) -> None:
    """Forget a user's subject at the provider; their next sign-in may bring another subject."""
    require(actor, organization.id, Permission.SSO_WRITE)
    connection = selectors.locked_connection(organization)
    identity = selectors.identity_of(organization, user)
    if identity is None:
        raise Conflict("This person has not signed in with SSO yet.")
    _record(actor, "sso.identity_unlinked", connection.organization, email=user.email)
    identity.delete()


def _check_not_enforced(connection: SsoConnection) -> None:
    if connection.is_enforced:
        raise Conflict("SSO is enforced: make it optional before you change the provider.")


def _roles(connection: SsoConnection) -> dict[str, Any]:
    return {
        "claim": connection.role_claim,
        "map": connection.role_map,
        "default": connection.default_role,
    }


def _record(actor: Actor, action: str, organization: Organization, **details: Any) -> None:
    audit.record_about(actor, action, organization, "organization", **details)


@transaction.atomic
def create_scim_token(*, actor: Actor, organization: Organization) -> str:
    """Return a new bearer token, which is not stored; it replaces the previous one. Only owners may
    create it, since it can change members as an owner can."""
    require(actor, organization.id, Permission.SSO_WRITE)
    token = new_token()
    fields = {"digest": token_digest(token), "last_four": token[-4:], "created_at": timezone.now()}
    _, is_first = ScimToken.objects.update_or_create(
        organization=organization, defaults={**fields, "last_used_at": None}
    )
    _record(actor, "scim.token_created" if is_first else "scim.token_rotated", organization)
    return token


@transaction.atomic
def disable_scim(*, actor: Actor, organization: Organization) -> None:
    """Delete the token; provisioned members keep their memberships."""
    require(actor, organization.id, Permission.SSO_WRITE)
    _scim_token(organization).delete()
    _record(actor, "scim.token_revoked", organization)


@transaction.atomic
def set_transfer_target(
    *, actor: Actor, organization: Organization, heir: Membership | None
) -> None:
    """Set the member who takes the API keys of suspended users; None ends these keys. Raises
    InvalidValue for a member who may not create keys."""
    require(actor, organization.id, Permission.SSO_WRITE)
    if heir is not None and not can(heir.role, Permission.API_KEYS_WRITE):
        raise InvalidValue("Choose a member who may create API keys.", param="heir")
    token = _scim_token(organization)
    before, token.heir = token.heir, heir
    token.save(update_fields=["heir"])
    _record(
        actor, "scim.transfer_target_set", organization,
        before={"heir": before.user.email if before else None},
        after={"heir": heir.user.email if heir else None},
    )  # fmt: skip


def _scim_token(organization: Organization) -> ScimToken:
    token = selectors.scim_token(organization)
    if token is None:
        raise Conflict("Create a token first.")
    return token


def checked_domain(value: str) -> str:
    """Return a domain name as in email addresses: ASCII, lower case. Raises InvalidValue."""
    name = value.strip().lower().removeprefix("@").removesuffix(".")
    if len(name) > DOMAIN_MAX or not DOMAIN.fullmatch(name):
        raise InvalidValue(
            "domain must be the part of addresses after @: example.com.", param="domain"
        )
    return name


def checked_text(value: str, param: str, *, longest: int) -> str:
    """Return a text without surrounding whitespace. Raises InvalidValue."""
    stripped = value.strip()
    if len(stripped) > longest or not stripped.isprintable():
        raise InvalidValue(
            f"{param} must have at most {longest} printable characters.", param=param
        )
    return stripped


def checked_role_map(values: Mapping[str, str]) -> dict[str, str]:
    """Return a role map. Raises InvalidValue for a role that a provider may not grant."""
    roles = {
        checked_text(value, "role_map", longest=CLAIM_MAX): role for value, role in values.items()
    }
    if len(roles) > MAPPED_MAX or "" in roles:
        raise InvalidValue(
            f"role_map must have at most {MAPPED_MAX} named values.", param="role_map"
        )
    for role in roles.values():
        checked_role(role, param="role_map")
    return roles


def checked_role(role: str, *, param: str) -> str:
    """Return a role that a provider may grant. Raises InvalidValue."""
    if role not in GRANTABLE:
        raise InvalidValue(f"{param}: {role!r} is not one of {', '.join(GRANTABLE)}.", param=param)
    return role


def listen() -> None:
    """Connect receivers to the deletion of organizations."""
    organization_deletion_previewed.connect(
        _on_deletion_previewed, dispatch_uid="control.sso.connections.asked"
    )
    organization_deleted.connect(_on_deleted, dispatch_uid="control.sso.connections")


def _on_deletion_previewed(
    sender: object, organization: Organization, **_: Any
) -> list[DeletionEffect]:
    effects = []
    if selectors.connection(organization).is_set_up:
        effects.append(DeletionEffect(gettext("Members can no longer sign in with SSO.")))
    if selectors.scim_token(organization) is not None:
        effects.append(DeletionEffect(gettext("The SCIM token stops working.")))
    return effects


def _on_deleted(
    sender: object, organization: Organization, now: datetime, **_: Any
) -> list[FeedRef]:
    for model in OF_ORGANIZATIONS:
        model._default_manager.filter(organization=organization).delete()
    return []
