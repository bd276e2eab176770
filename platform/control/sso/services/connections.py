"""Setting up an organization's provider, and saying who must use it.

Whoever names the provider can sign in as an owner, so owners alone do; roles below an owner's are
mapped by admins too.
"""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from control.actor import Actor
from control.audit import services as audit
from control.errors import Conflict, InvalidValue
from control.operators import Duty, require_operator
from control.sso import checks, people, selectors
from control.sso.models import Connection, Identity, Protocol
from control.sso.oidc import discover
from control.sso.saml import read_metadata
from control.sso.secrets import sealed
from control.sso.services.members import place_all
from control.tenants.models import Organization, User
from control.tenants.permissions import Action, require

NOTHING_SET_UP: dict[str, Any] = {
    "issuer": "", "client_id": "", "sealed_secret": "", "metadata_url": "", "provider": {},
}  # fmt: skip


def set_up_oidc(
    *, actor: Actor, organization: Organization, issuer: str, client_id: str, client_secret: str
) -> Connection:
    """Sign in by OpenID Connect from now on; without a secret the earlier one stays.

    The issuer is asked for its addresses. Raises InvalidValue.
    """
    require(actor, organization, Action.MANAGE_OWNERS)
    client_id = checks.text(client_id, "client_id", longest=255)
    secret = client_secret.strip()
    found = discover(issuer)  # seconds, so before the transaction
    current = selectors.connection(organization)
    stays = current.protocol == Protocol.OIDC and current.issuer == found["issuer"]
    if not client_id or not (secret or (stays and current.sealed_secret)):
        raise InvalidValue("A client id and its secret are needed.", param="client_secret")
    kept = sealed(organization, secret) if secret else current.sealed_secret
    return _set_up(
        actor, organization, Protocol.OIDC,
        issuer=found["issuer"], client_id=client_id, sealed_secret=kept, provider=found,
    )  # fmt: skip


def set_up_saml(
    *, actor: Actor, organization: Organization, metadata_url: str, metadata: str
) -> Connection:
    """Sign in by SAML from now on, by the provider's metadata: read from an address, or given.

    Raises InvalidValue.
    """
    require(actor, organization, Action.MANAGE_OWNERS)
    found = read_metadata(url=metadata_url.strip(), xml=metadata)
    return _set_up(
        actor, organization, Protocol.SAML,
        issuer=found["entity_id"], metadata_url=metadata_url.strip(), provider=found,
    )  # fmt: skip


@transaction.atomic
def _set_up(
    actor: Actor, organization: Organization, protocol: Protocol, **fields: Any
) -> Connection:
    """Another provider knows other people: what the earlier one called them is forgotten, and
    nobody must use it before an owner did."""
    connection = selectors.locked_connection(organization)
    before = (connection.protocol, connection.issuer)
    if before != (protocol, fields["issuer"]):
        _check_not_enforced(connection)
        Identity.objects.filter(organization=organization).delete()
    for field, value in {**NOTHING_SET_UP, **fields, "protocol": protocol}.items():
        setattr(connection, field, value)
    if not connection.is_enforced:
        connection.is_tried = False
    connection.save()
    _record(
        actor, "sso.set_up", connection,
        before=" ".join(before).strip(), after=f"{protocol} {connection.issuer}",
        client_id=connection.client_id,
    )  # fmt: skip
    return connection


@transaction.atomic
def remove_provider(*, actor: Actor, organization: Organization) -> None:
    """Sign in by the provider no more. Raises Conflict while it is enforced."""
    require(actor, organization, Action.MANAGE_OWNERS)
    connection = selectors.locked_connection(organization)
    _check_not_enforced(connection)
    _record(actor, "sso.remove", connection, before=f"{connection.protocol} {connection.issuer}")
    Identity.objects.filter(organization=organization).delete()
    for field, value in {**NOTHING_SET_UP, "protocol": "", "is_tried": False}.items():
        setattr(connection, field, value)
    connection.save()


@transaction.atomic
def map_roles(
    *,
    actor: Actor,
    organization: Organization,
    role_claim: str,
    role_map: Mapping[str, str],
    default_role: str,
) -> Connection:
    """Say which role the provider's groups give; without a default others get no seat."""
    require(actor, organization, Action.MANAGE_MEMBERS)
    connection = selectors.locked_connection(organization)
    before = _roles(connection)
    connection.role_claim = checks.text(role_claim, "role_claim", longest=checks.CLAIM_MAX)
    connection.role_map = checks.role_map(role_map)
    if default_role:
        checks.grantable(default_role, param="default_role")
    connection.default_role = default_role
    connection.save(update_fields=["role_claim", "role_map", "default_role"])
    place_all(selectors.scim_users(organization).filter(is_active=True))
    _record(actor, "sso.map_roles", connection, before=before, after=_roles(connection))
    return connection


@transaction.atomic
def enforce(*, actor: Actor, organization: Organization) -> int:
    """Let addresses of the verified domains sign in by the provider only; their sessions end, but
    for the actor's. Returns how many people it concerns.

    Raises Conflict before an owner came in by it.
    """
    require(actor, organization, Action.MANAGE_OWNERS)
    connection = selectors.locked_connection(organization)
    if not connection.is_set_up or not connection.is_tried:
        raise Conflict("Sign in by it yourself first: an owner must have come in by this provider.")
    names = selectors.verified_domains(organization)
    if not names:
        raise Conflict("Verify a domain first: SSO is enforced for its addresses.")
    if connection.is_enforced:
        raise Conflict("It is enforced already.")
    concerned = selectors.people_of(names)
    connection.is_enforced = True
    connection.save(update_fields=["is_enforced"])
    for user in concerned:
        if user.pk != actor.user_id:
            people.end_sessions(user)
    _record(actor, "sso.enforce", connection, domains=sorted(names), people=len(concerned))
    return len(concerned)


@transaction.atomic
def make_optional(*, actor: Actor, organization: Organization) -> None:
    """Let people sign in by other ways too: an owner may, and an operator for an organization whose
    provider is broken."""
    if actor.is_operator:
        require_operator(actor, Duty.HELP_CUSTOMERS)
    else:
        require(actor, organization, Action.MANAGE_OWNERS)
    connection = selectors.locked_connection(organization)
    if not connection.is_enforced:
        raise Conflict("It is optional already.")
    connection.is_enforced = False
    connection.save(update_fields=["is_enforced"])
    _record(actor, "sso.make_optional", connection)


@transaction.atomic
def forget_identity(*, actor: Actor, organization: Organization, user: User) -> None:
    """Let a person be another subject at the provider from their next sign-in on."""
    require(actor, organization, Action.MANAGE_OWNERS)
    connection = selectors.locked_connection(organization)
    found = selectors.identity_of(organization, user)
    if found is None:
        raise Conflict("They did not sign in by SSO yet.")
    _record(actor, "sso.forget_identity", connection, email=user.email)
    found.delete()


def _check_not_enforced(connection: Connection) -> None:
    if connection.is_enforced:
        raise Conflict("SSO is enforced: make it optional before you change the provider.")


def _roles(connection: Connection) -> dict[str, Any]:
    return {
        "claim": connection.role_claim,
        "map": connection.role_map,
        "default": connection.default_role,
    }


def _record(actor: Actor, action: str, connection: Connection, **details: Any) -> None:
    audit.record(
        actor=actor,
        action=action,
        target_kind="organization",
        target_id=connection.organization_id,
        organization_id=connection.organization_id,
        details=details,
    )
