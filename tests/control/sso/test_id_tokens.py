"""ID tokens that a provider did not make, made for somebody else, or made before."""

import hmac
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from control.errors import InvalidValue, NotPermitted
from control.organizations.models import Organization
from control.sso import oidc
from control.sso.models import SsoConnection, encrypted_secret
from control.sso.provisioning import IdentityAssertion

pytestmark = pytest.mark.unit
ISSUER, CLIENT, SECRET = "https://acme.okta.example", "penstock", "s" * 40
CALLBACK = "https://console.example/sso/org_1/callback"
KEY, OTHERS = (rsa.generate_private_key(65537, 2048) for _ in range(2))
PEM = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def shown(key: rsa.RSAPrivateKey, **fields: str) -> dict[str, Any]:
    """Return a key as the provider shows it."""
    return {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), **fields}


class Provider:
    """What the provider answers, and what it was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[dict[str, Any]] = [shown(KEY, kid="1", use="sig")]
        self.token = ""
        self.sent: dict[str, str] = {}
        self.more: dict[str, Any] = {}
        monkeypatch.setattr(oidc, "post_form", self.post_form)
        monkeypatch.setattr(oidc, "fetch_json", self.fetch_json)
        organization = Organization(id="org_1")
        self.connection = SsoConnection(
            organization=organization, protocol="oidc", issuer=ISSUER, client_id=CLIENT,
            sealed_secret=encrypted_secret(organization, SECRET),
            provider={
                "token_auth": "client_secret_basic", "authorization_endpoint": f"{ISSUER}/auth",
                "token_endpoint": f"{ISSUER}/token", "jwks_uri": f"{ISSUER}/keys",
                "userinfo_endpoint": f"{ISSUER}/me",
            },
        )  # fmt: skip
        self.url, self.asked = oidc.authorization_url(self.connection, CALLBACK, hint="")

    def post_form(self, url: str, form: dict[str, str], *, by: tuple[str, str]) -> dict[str, Any]:
        self.sent = {"url": url, **form}
        assert by == (CLIENT, SECRET)
        return {"id_token": self.token, "access_token": "a"}

    def fetch_json(self, url: str, *, bearer: str = "") -> dict[str, Any]:
        return self.more if bearer else {"keys": self.keys}

    def claims(self, **changed: Any) -> dict[str, Any]:
        now = int(time.time())
        return {
            "iss": ISSUER, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 300,
            "nonce": self.asked.nonce, "email": "ada@acme.example", **changed,
        }  # fmt: skip

    def signed(self, key: Any = KEY, algorithm: str = "RS256", **changed: Any) -> None:
        claims = {name: each for name, each in self.claims(**changed).items() if each is not None}
        self.token = jwt.encode(claims, key, algorithm, headers={"kid": "1"})

    def vouched(self, **changed: str) -> IdentityAssertion:
        said = {"code": "c", "state": self.asked.state, **changed}
        return oidc.verify_response(self.connection, CALLBACK, self.asked, **said)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    return Provider(monkeypatch)


def test_a_token_that_holds_is_believed(provider: Provider) -> None:
    provider.signed()
    assert provider.vouched(iss=ISSUER).email == "ada@acme.example"


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "somebody-else"},
        {"aud": [CLIENT, "somebody-else"]},
        {"aud": [CLIENT, "somebody-else"], "azp": "somebody-else"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": 1_700_000_000},
        {"exp": None},
        {"iat": 4_000_000_000},
        {"nbf": 4_000_000_000},
        {"nonce": "of-another-sign-in"},
        {"nonce": None},
        {"sub": None},
    ],
    ids=str,
)
def test_a_token_for_others_or_another_time_is_refused(
    changed: dict[str, Any], provider: Provider
) -> None:
    provider.signed(**changed)
    with pytest.raises(InvalidValue):
        provider.vouched()


def test_a_key_that_the_provider_does_not_show_proves_nothing(provider: Provider) -> None:
    provider.signed(OTHERS)
    with pytest.raises(InvalidValue, match="is not valid"):
        provider.vouched()


def test_no_signature_proves_nothing(provider: Provider) -> None:
    provider.signed(None, "none")
    with pytest.raises(InvalidValue):
        provider.vouched()


@pytest.mark.parametrize("secret", [SECRET.encode(), PEM], ids=["the secret", "the public key"])
def test_no_secret_proves_anything(secret: bytes, provider: Provider) -> None:
    """Neither ours nor the provider's public key, taken for one (HS256)."""
    provider.signed("x" * 32, "HS256")
    head, body, _ = provider.token.split(".")
    signature = hmac.digest(secret, f"{head}.{body}".encode(), "sha256")
    provider.token = f"{head}.{body}.{urlsafe_b64encode(signature).decode().rstrip('=')}"
    with pytest.raises(InvalidValue):
        provider.vouched()
    octets = urlsafe_b64encode(secret).decode().rstrip("=")
    provider.keys = [{"kty": "oct", "kid": "1", "k": octets}]
    with pytest.raises(InvalidValue):
        provider.vouched()


def test_a_key_in_the_tokens_own_head_is_not_looked_at(provider: Provider) -> None:
    head = {"kid": "2", "jwk": shown(OTHERS), "jku": "https://evil.example/keys"}
    provider.token = jwt.encode(provider.claims(), OTHERS, "RS256", headers=head)
    with pytest.raises(InvalidValue, match="does not publish"):
        provider.vouched()


def test_a_key_is_named_where_there_are_several(provider: Provider) -> None:
    provider.keys.append(shown(OTHERS, kid="2"))
    provider.token = jwt.encode(provider.claims(), KEY, "RS256")
    with pytest.raises(InvalidValue, match="does not publish"):
        provider.vouched()


@pytest.mark.parametrize(
    "broken",
    [{}, {"n": None}, {"n": "!"}, {"e": 1}, {"kty": "EC"}, {"kty": []}, {"use": "enc"}],
    ids=str,
)
def test_a_broken_key_proves_nothing(broken: dict[str, Any], provider: Provider) -> None:
    provider.signed(OTHERS)
    provider.keys = [{**shown(KEY, kid="1"), **broken}]
    with pytest.raises(InvalidValue):
        provider.vouched()


@pytest.mark.parametrize("token", ["", "a.b.c", "e30.e30.", "x" * 5000])
def test_nonsense_is_no_token(token: str, provider: Provider) -> None:
    provider.token = token
    with pytest.raises(InvalidValue):
        provider.vouched()


def test_an_answer_of_another_sign_in_or_provider_is_not_followed(provider: Provider) -> None:
    provider.signed()
    for said in ({"state": "x"}, {"state": ""}, {"iss": "https://evil.example"}):
        with pytest.raises(NotPermitted):
            provider.vouched(**said)
    assert provider.sent == {}


def test_a_code_is_worth_something_to_who_asked_only(provider: Provider) -> None:
    """PKCE: the browser carries a digest, and the code is bought with what it is made of."""
    provider.signed()
    provider.vouched()
    query = parse_qs(urlsplit(provider.url).query)
    digest = sha256(provider.sent["code_verifier"].encode()).digest()
    assert query["code_challenge"] == [urlsafe_b64encode(digest).decode().rstrip("=")]
    assert provider.sent["redirect_uri"] == query["redirect_uri"][0] == CALLBACK
    assert provider.sent["code_verifier"] not in provider.url


def test_what_is_told_elsewhere_is_of_the_same_person(provider: Provider) -> None:
    provider.signed(email=None)
    provider.more = {"sub": "2", "email": "owner@acme.example"}
    with pytest.raises(InvalidValue, match="two people"):
        provider.vouched()
    provider.more["sub"] = "1"
    assert provider.vouched().email == "owner@acme.example"
