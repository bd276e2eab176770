"""Secrets of connections: the provider's, which must be read again, and SCIM's, which must not."""

import hashlib
import secrets

from control.encryption import decrypt, encrypt
from control.sso.models import Connection
from control.tenants.models import Organization

TOKEN_PREFIX = "pen_scim_"  # noqa: S105  (what every token begins with)


def sealed(organization: Organization, secret: str) -> str:
    """Return what is stored of a provider's secret."""
    return encrypt(secret, purpose=purpose_of(organization.id))


def opened(connection: Connection) -> str:
    """Return a provider's secret. Raises DecryptionError where its vault key is gone."""
    return decrypt(connection.sealed_secret, purpose=purpose_of(connection.organization_id))


def new_token() -> str:
    """Return a fresh bearer token of SCIM: 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def token_digest(token: str) -> str:
    """Return what is stored of a bearer token."""
    return hashlib.sha256(token.encode()).hexdigest()


def purpose_of(organization_id: str) -> str:
    """Return what the vault knows a provider's secret by."""
    return f"OIDC secret of {organization_id}"
