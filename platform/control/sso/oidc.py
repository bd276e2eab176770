"""OpenID Connect: the code flow with PKCE, state and nonce, and the checks of an ID token."""

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
"""Signatures with a private key only: a secret or `none` proves nothing here."""
LEEWAY_SECONDS = 60
GOOGLE = "https://accounts.google.com"
KEYS_MAX = 50
POSTED = "client_secret_post"
"""The secret in the form; else it is in the head."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """What a browser's session keeps between asking the provider and its answer."""

    state: str
    nonce: str
    verifier: str

    def as_dict(self) -> dict[str, str]:
        """Return it as a session can hold it."""
        return asdict(self)


def discover(issuer: str) -> dict[str, Any]:
    """Return what a provider says of itself: its issuer, its addresses, how it takes the secret.

    Raises InvalidValue where there is none, or it calls itself otherwise: a document for many
    tenants at once vouches for none of them.
    """
    wanted = issuer.strip().removesuffix(WELL_KNOWN).rstrip("/")
    found = fetch_json(require_url(wanted + WELL_KNOWN))
    named = str(found.get("issuer", ""))
    if named.rstrip("/") != wanted:
        raise InvalidValue(
            f"The provider calls itself {named[:200]!r}; wanted {wanted!r}.", param="issuer"
        )
    methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    is_posted = "client_secret_basic" not in methods
    return {
        "issuer": named,
        "token_auth": POSTED if is_posted else "client_secret_basic",
        **{name: require_url(found.get(name)) for name in ENDPOINTS},
        "userinfo_endpoint": require_url(found["userinfo_endpoint"])
        if "userinfo_endpoint" in found
        else "",
    }


def authorization_url(
    connection: SsoConnection, callback_url: str, *, hint: str
) -> tuple[str, AuthorizationRequest]:
    """Return where the browser goes, and what to keep until it comes back."""
    asked = AuthorizationRequest(*(secrets.token_urlsafe(32) for _ in range(3)))
    digest = hashlib.sha256(asked.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": connection.client_id,
        "redirect_uri": callback_url,
        "scope": SCOPE,
        "state": asked.state,
        "nonce": asked.nonce,
        "code_challenge": urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        **({"login_hint": hint} if hint else {}),
    }
    address = connection.provider["authorization_endpoint"]
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", asked


def verify_response(
    connection: SsoConnection,
    callback_url: str,
    asked: AuthorizationRequest,
    *,
    code: str,
    state: str,
    iss: str = "",
) -> IdentityAssertion:
    """Return whom the provider's answer speaks of; `iss` is who it says to be (RFC 9207), if it
    does. Raises ServiceError."""
    if not secrets.compare_digest(state.encode(), asked.state.encode()):
        raise NotPermitted("This answer belongs to another sign-in. Begin again.")
    if iss and iss != connection.issuer:
        raise NotPermitted("This answer is of another provider. Begin again.")
    tokens = _tokens(connection, callback_url, asked, code)
    claims = _claims(connection, asked, str(tokens.get("id_token", "")))
    if "email" not in claims or connection.role_claim not in {"", *claims}:
        claims = {**_more_claims(connection, claims, str(tokens.get("access_token", ""))), **claims}
    return read_claims(connection, claims)


def read_claims(connection: SsoConnection, claims: dict[str, Any]) -> IdentityAssertion:
    """Return what checked claims say of a person. Raises NotPermitted for an address that the
    provider itself does not vouch for."""
    email = claims.get("email")
    if not isinstance(email, str) or not (email.isascii() and email.isprintable()):
        raise NotPermitted("The provider sent no e-mail address: it must grant the scope email.")
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
    found = claims.get(connection.role_claim, [])
    return tuple(map(str, found if isinstance(found, list) else [found]))


def _tokens(
    connection: SsoConnection, callback_url: str, asked: AuthorizationRequest, code: str
) -> dict[str, Any]:
    """Return what the provider gives for a code."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": callback_url,
        "code_verifier": asked.verifier,
    }
    try:
        names = (connection.client_id, decrypted_secret(connection))
    except DecryptionError as error:
        raise InvalidValue("An owner must give the client secret again.") from error
    if connection.provider["token_auth"] == POSTED:
        return post_form(
            connection.provider["token_endpoint"],
            {**form, "client_id": names[0], "client_secret": names[1]},
        )
    # Both are escaped first (RFC 6749, 2.3.1): a colon in an id is no end of it.
    by = (quote(names[0], safe=""), quote(names[1], safe=""))
    return post_form(connection.provider["token_endpoint"], form, by=by)


def _more_claims(
    connection: SsoConnection, claims: dict[str, Any], access_token: str
) -> dict[str, Any]:
    """Return what the provider tells at its other address, of the same person."""
    url = connection.provider["userinfo_endpoint"]
    if not url:
        return {}
    found = fetch_json(url, bearer=access_token)
    if found.get("sub") != claims["sub"]:
        raise InvalidValue("The provider tells of two people at once.")
    return found


def _claims(connection: SsoConnection, asked: AuthorizationRequest, token: str) -> dict[str, Any]:
    """Return the claims of an ID token: signed by the provider, for us, for this sign-in, now."""
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
        raise InvalidValue(f"The ID token does not hold: {error}.") from error
    if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), asked.nonce.encode()):
        raise InvalidValue("The ID token belongs to another sign-in.")
    others = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if len(others) > 1 and claims.get("azp") != connection.client_id:
        raise InvalidValue("The ID token was made for somebody else.")
    return claims


def _key(keys: dict[str, Any], header: dict[str, Any]) -> jwt.PyJWK:
    """Return the key that a token names; the only one where it names none. Raises InvalidValue."""
    if header.get("alg") not in ALGORITHMS:
        raise InvalidValue("The ID token is not signed as a provider must.")
    rows = keys.get("keys")
    rows = rows[:KEYS_MAX] if isinstance(rows, list) else []
    fitting = [
        row
        for row in rows
        if isinstance(row, dict)
        and row.get("use", "sig") == "sig"
        and row.get("kty") in ("RSA", "EC")
    ]
    named = [row for row in fitting if row.get("kid") == header.get("kid")]
    chosen = named or (fitting if header.get("kid") is None else [])
    if len(chosen) != 1:
        raise InvalidValue("The ID token is signed with a key that the provider does not show.")
    return jwt.PyJWK(chosen[0], algorithm=header["alg"])
