"""Secrets of connections: the provider's, which must be read again, and SCIM's, which must not."""

import hashlib
import secrets

from control.sso.models import Connection
from control.tenants.models import Organization
from control.vault import decrypt, encrypt

TOKEN_PREFIX = "pen_scim_"  # noqa: S105  (what every token begins with)


def sealed(organization: Organization, secret: str) -> str:
    """Return what is stored of a provider's secret."""
    return encrypt(secret, purpose=_purpose(organization.id))


def opened(connection: Connection) -> str:
    """Return a provider's secret. Raises VaultError where the key pepper is another one now."""
    return decrypt(connection.sealed_secret, purpose=_purpose(connection.organization_id))


def new_token() -> str:
    """Return a fresh bearer token of SCIM: 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def token_digest(token: str) -> str:
    """Return what is stored of a bearer token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _purpose(organization_id: str) -> str:
    return f"OIDC secret of {organization_id}"
