"""OpenID Connect: the code flow with PKCE, state and nonce, and the validation of ID tokens."""

import hashlib
import secrets
from base64 import urlsafe_b64encode
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlencode

import jwt

from control.egress import fetch_json, post_form, require_url
from control.encryption import DecryptionError
from control.errors import InvalidValue, NotPermitted
from control.sso.models import SsoConnection, decrypted_secret
from control.sso.provisioning import IdentityAssertion

WELL_KNOWN = "/.well-known/openid-configuration"
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
SCOPE = "openid email profile"
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Asymmetric signatures only: HMAC or `none` would prove nothing here."""
LEEWAY_SECONDS = 60
GOOGLE = "https://accounts.google.com"
KEYS_MAX = 50
POSTED = "client_secret_post"
"""The method that sends the secret in the form instead of the header."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """The values that the session keeps between the request to the provider and its response."""

    state: str
    nonce: str
    verifier: str

    def as_dict(self) -> dict[str, str]:
        """Return the fields as JSON for the session."""
        return asdict(self)


def discover(issuer: str) -> dict[str, Any]:
    """Return a provider's issuer, its endpoints and how it accepts the secret.

    Raises InvalidValue if there is no document or it names another issuer: a document that many
    tenants share authenticates none of them.
    """
    wanted = issuer.strip().removesuffix(WELL_KNOWN).rstrip("/")
    document = fetch_json(require_url(wanted + WELL_KNOWN))
    named = str(document.get("issuer", ""))
    if named.rstrip("/") != wanted:
        raise InvalidValue(
            f"The provider's issuer is {named[:200]!r}; wanted {wanted!r}.", param="issuer"
        )
    methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    is_posted = "client_secret_basic" not in methods
    return {
        "issuer": named,
        "token_auth": POSTED if is_posted else "client_secret_basic",
        **{name: require_url(document.get(name)) for name in ENDPOINTS},
        "userinfo_endpoint": require_url(document["userinfo_endpoint"])
        if "userinfo_endpoint" in document
        else "",
    }


def authorization_url(
    connection: SsoConnection, callback_url: str, *, hint: str
) -> tuple[str, AuthorizationRequest]:
    """Return the URL to send the browser to, and the values to keep until it returns."""
    pending = AuthorizationRequest(*(secrets.token_urlsafe(32) for _ in range(3)))
    digest = hashlib.sha256(pending.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": connection.client_id,
        "redirect_uri": callback_url,
        "scope": SCOPE,
        "state": pending.state,
        "nonce": pending.nonce,
        "code_challenge": urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        **({"login_hint": hint} if hint else {}),
    }
    address = connection.provider["authorization_endpoint"]
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", pending


def verify_response(
    connection: SsoConnection,
    callback_url: str,
    asked: AuthorizationRequest,
    *,
    code: str,
    state: str,
    iss: str = "",
) -> IdentityAssertion:
    """Return the identity in the provider's response. `iss` is the issuer that the response names
    (RFC 9207), if any. Raises ServiceError."""
    if not secrets.compare_digest(state.encode(), asked.state.encode()):
        raise NotPermitted("This response belongs to another sign-in. Start again.")
    if iss and iss != connection.issuer:
        raise NotPermitted("This response is from another provider. Start again.")
    tokens = _tokens(connection, callback_url, asked, code)
    claims = _claims(connection, asked, str(tokens.get("id_token", "")))
    if "email" not in claims or connection.role_claim not in {"", *claims}:
        claims = {**_userinfo(connection, claims, str(tokens.get("access_token", ""))), **claims}
    return read_claims(connection, claims)


def read_claims(connection: SsoConnection, claims: dict[str, Any]) -> IdentityAssertion:
    """Return the identity in validated claims. Raises NotPermitted for an address that the provider
    has not verified."""
    email = claims.get("email")
    if not isinstance(email, str) or not (email.isascii() and email.isprintable()):
        raise NotPermitted("The provider sent no email address. It must grant the scope email.")
    if claims.get("email_verified") in (False, "false"):
        raise NotPermitted(f"The provider did not verify {email}.")
    if connection.issuer == GOOGLE and claims.get("hd") != email.rpartition("@")[2].lower():
        raise NotPermitted("This is a private Google account, not one of your organization's.")
    return IdentityAssertion(
        subject=str(claims["sub"]),
        email=email,
        values=_values(connection, claims),
        name=str(claims.get("name") or ""),
    )


def _values(connection: SsoConnection, claims: dict[str, Any]) -> tuple[str, ...] | None:
    if not connection.role_claim:
        return None
    value = claims.get(connection.role_claim, [])
    return tuple(map(str, value if isinstance(value, list) else [value]))


def _tokens(
    connection: SsoConnection, callback_url: str, pending: AuthorizationRequest, code: str
) -> dict[str, Any]:
    """Return the token response for a code. Raises InvalidValue."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": callback_url,
        "code_verifier": pending.verifier,
    }
    try:
        client_secret = decrypted_secret(connection)
    except DecryptionError as error:
        raise InvalidValue("An owner must enter the client secret again.") from error
    endpoint = connection.provider["token_endpoint"]
    if connection.provider["token_auth"] == POSTED:
        credentials = {"client_id": connection.client_id, "client_secret": client_secret}
        return post_form(endpoint, {**form, **credentials})
    # Both are escaped first (RFC 6749, 2.3.1), so that a colon in the id does not end it.
    by = (quote(connection.client_id, safe=""), quote(client_secret, safe=""))
    return post_form(endpoint, form, by=by)


def _userinfo(
    connection: SsoConnection, claims: dict[str, Any], access_token: str
) -> dict[str, Any]:
    """Return the claims of the userinfo endpoint. Raises InvalidValue for another subject."""
    url = connection.provider["userinfo_endpoint"]
    if not url:
        return {}
    userinfo = fetch_json(url, bearer=access_token)
    if userinfo.get("sub") != claims["sub"]:
        raise InvalidValue("The provider's response names two people.")
    return userinfo


def _claims(connection: SsoConnection, pending: AuthorizationRequest, token: str) -> dict[str, Any]:
    """Return the claims of an ID token. It must be signed by the provider, meant for us and this
    sign-in, and current. Raises InvalidValue."""
    keys = fetch_json(connection.provider["jwks_uri"])
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            _key(keys, jwt.get_unverified_header(token)),
            algorithms=ALGORITHMS,
            audience=connection.client_id,
            issuer=connection.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
    except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
        raise InvalidValue(f"The ID token is not valid: {error}.") from error
    if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), pending.nonce.encode()):
        raise InvalidValue("The ID token belongs to another sign-in.")
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if len(audiences) > 1 and claims.get("azp") != connection.client_id:
        raise InvalidValue("The ID token was issued for another client.")
    return claims


def _key(keys: dict[str, Any], header: dict[str, Any]) -> jwt.PyJWK:
    """Return the key that a token names, or the only key if it names none. Raises InvalidValue."""
    if header.get("alg") not in ALGORITHMS:
        raise InvalidValue("The ID token is not signed with an accepted algorithm.")
    rows = keys.get("keys")
    rows = rows[:KEYS_MAX] if isinstance(rows, list) else []
    usable = [
        row
        for row in rows
        if isinstance(row, dict)
        and row.get("use", "sig") == "sig"
        and row.get("kty") in ("RSA", "EC")
    ]
    named = [row for row in usable if row.get("kid") == header.get("kid")]
    chosen = named or (usable if header.get("kid") is None else [])
    if len(chosen) != 1:
        raise InvalidValue("The ID token is signed with a key that the provider does not publish.")
    return jwt.PyJWK(chosen[0], algorithm=header["alg"])
