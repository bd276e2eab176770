"""From an Authorization header to a principal, with one answer for every failure."""

from collections.abc import Callable, Sequence
from datetime import datetime

from serving.contract.api_key import digest, is_well_formed
from serving.contract.client_address import Address, is_in
from serving.gateway.directory import Directory
from serving.gateway.errors import Forbidden, Suspended, Unauthorized, Unavailable
from serving.gateway.principals import Principal

INFERENCE = "inference"


def authenticate(
    directory: Directory,
    peppers: Sequence[bytes],
    *,
    authorization: str,
    client: Callable[[], Address | None],
    now: datetime,
) -> Principal:
    """Return whose key it is; `client` is asked where the key is bound to networks.

    Raises Unauthorized, or Unavailable while keys are unknown.
    """
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not is_well_formed(secret.strip()):
        raise Unauthorized
    principal = _find(directory, secret.strip(), peppers)
    if principal is None and not directory.is_whole:
        message = "This gateway is starting. Please try again."
        raise Unavailable(message, code="server_is_overloaded")
    if principal is None or _is_expired(principal, now) or not _may_call(principal, client):
        raise Unauthorized
    return principal


def check_permitted(principal: Principal) -> None:
    """Raise Suspended, or Forbidden if the key lacks the scope."""
    if principal.is_suspended:
        raise Suspended
    if INFERENCE not in principal.key.scopes:
        raise Forbidden("This API key lacks the scope 'inference'.", code="missing_scope")


def may_use(principal: Principal, *names: str) -> bool:
    """Tell whether the key allows a model by any of its names."""
    allowed = principal.key.models
    return allowed is None or any(name in allowed for name in names)


def _find(directory: Directory, secret: str, peppers: Sequence[bytes]) -> Principal | None:
    """Return whose secret it is, whichever pepper its digest was made with."""
    found = (directory.principal(digest(secret, pepper)) for pepper in peppers)
    return next((principal for principal in found if principal is not None), None)


def _is_expired(principal: Principal, now: datetime) -> bool:
    expires_at = principal.key.expires_at
    return expires_at is not None and now >= expires_at


def _may_call(principal: Principal, client: Callable[[], Address | None]) -> bool:
    return principal.networks is None or is_in(client(), principal.networks)
