"""Authentication of the management API by API keys whose scopes are for it."""

import ipaddress
from datetime import timedelta

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from control.api_keys.models import ApiKey, digests_of
from control.api_keys.selectors import key_by_digests
from control.api_keys.services import record_key_usage
from control.organizations.access import ApiKeyPrincipal
from control.request_context import client_address
from serving.contract.api_key import is_well_formed
from serving.contract.client_address import is_in

TOUCHED_EACH = timedelta(minutes=1)
"""The shortest time between two updates of a key's `last_used_at`."""
NO_PERMISSION = "The API key has no scope of the management API, such as manage."
SUSPENDED = "The organization is suspended. Its Billing page in the console says why."


class KeyAuthentication(BaseAuthentication):
    """Authenticates `Authorization: Bearer pen_…`; `request.auth` becomes the ApiKey."""

    def authenticate(self, request: Request) -> tuple[ApiKeyPrincipal, ApiKey] | None:
        """Return the key's principal; None leaves the request to other authentication classes.

        An invalid key gets the same 401 whatever the reason. A missing scope or a suspended
        organization gets a 403.
        """
        kind, _, secret = get_authorization_header(request).decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            return None
        # A bad checksum never reaches the database.
        now = timezone.now()
        key = key_by_digests(digests_of(secret), now) if is_well_formed(secret) else None
        if key is None or not _comes_from_allowed_network(request, key):
            raise AuthenticationFailed("The API key is not valid.", code="invalid_api_key")
        if not key.organization.is_active:
            raise PermissionDenied(SUSPENDED, code="organization_suspended")
        if not key.permissions:
            raise PermissionDenied(NO_PERMISSION)
        if key.last_used_at is None or key.last_used_at < now - TOUCHED_EACH:
            record_key_usage({key.id: now})
        principal = ApiKeyPrincipal(
            key.id, key.name, key.organization, key.created_by_id, key.permissions
        )
        return principal, key

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401."""
        return 'Bearer realm="penstock"'


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes API keys in the OpenAPI document."""

    target_class = KeyAuthentication
    name = "apiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the OpenAPI security scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "pen_live_…"}


def _comes_from_allowed_network(request: Request, key: ApiKey) -> bool:
    if key.allowed_networks is None:
        return True
    networks = [ipaddress.ip_network(network) for network in key.allowed_networks]
    return is_in(client_address(request), networks)
