"""Authentication of the operators' API by operator tokens."""

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from control.api.operator_views import OperatorPrincipal
from control.operators.models import OperatorToken
from control.operators.selectors import token_by_digests
from control.operators.services import digests_of, is_well_formed, record_token_use
from control.permissions import Actor
from control.request_context import bind_log_ids


class OperatorTokenAuthentication(BaseAuthentication):
    """Authenticates `Authorization: Bearer pen_op_…`; `request.auth` becomes the OperatorToken."""

    def authenticate(self, request: Request) -> tuple[OperatorPrincipal, OperatorToken] | None:
        """Return the token's principal; None without a bearer token. Any other secret, an API key
        among them, gets the same 401 whatever the reason."""
        kind, _, secret = get_authorization_header(request).decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            return None
        # A bad checksum never reaches the database.
        now = timezone.now()
        token = token_by_digests(digests_of(secret), now) if is_well_formed(secret) else None
        if token is None:
            detail = "The operator token is not valid."
            raise AuthenticationFailed(detail, code="invalid_operator_token")
        record_token_use(token, now)
        actor = Actor.for_operator_token(token.created_by, token.id, token.permissions)
        bind_log_ids(user_id=actor.user_id)
        return OperatorPrincipal(actor), token

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401."""
        return 'Bearer realm="penstock operators"'


class OperatorTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes operator tokens in the OpenAPI document."""

    target_class = OperatorTokenAuthentication
    name = "operatorToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        """Return the OpenAPI security scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "pen_op_…"}
