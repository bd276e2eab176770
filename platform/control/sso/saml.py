"""SAML 2.0 with python3-saml: the provider's metadata, our request, and the checks of its response.

A response counts once, and only for a request of the same browser: `InResponseTo` must be the id
that its session keeps. Unsolicited responses are refused. The library accepts a response without
`InResponseTo`; here the signed part must contain it.
"""

from base64 import b64decode
from typing import Any
from urllib.parse import urlsplit

from cryptography.x509 import load_der_x509_certificate
from django.conf import settings
from lxml.etree import LxmlError
from onelogin.saml2.auth import OneLogin_Saml2_Auth
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Names
from onelogin.saml2.errors import OneLogin_Saml2_Error, OneLogin_Saml2_ValidationError
from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser
from onelogin.saml2.response import OneLogin_Saml2_Response

from control.egress import fetch, require_url
from control.errors import InvalidValue, NotPermitted
from control.mail.services import absolute
from control.sso.models import SsoConnection
from control.sso.provisioning import IdentityAssertion

METADATA_BYTES_MAX = 512 * 1024
CERTIFICATES_MAX = 10
EMAIL_ATTRIBUTES = (
    "email",
    "mail",
    "emailAddress",
    "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress",
    "urn:oid:0.9.2342.19200300.100.1.3",
)
"""Names that providers use for the email attribute, the documented one first."""
BROKEN = (OneLogin_Saml2_Error, OneLogin_Saml2_ValidationError, LxmlError, ValueError, KeyError)


class SamlResponse(OneLogin_Saml2_Response):
    """A provider's response whose signed part names its audience, recipient and request. The rest
    of the document is unsigned, so anybody could have changed it."""

    def is_valid(
        self, request_data: Any, request_id: str | None = None, raise_exceptions: bool = False
    ) -> bool:
        """Return whether the response is valid for this request, now."""
        if not super().is_valid(request_data, request_id, raise_exceptions):
            return False
        if not self._is_bound(self._settings.get_sp_data(), request_id):
            self._error = "it does not say that it answers this question, and nobody else's"
            return False
        return True

    def _is_bound(self, service_provider: dict[str, Any], request_id: str | None) -> bool:
        """Return whether the signed assertion, which the query reads, names us and the request."""
        confirmations = self._query_assertion("/saml:Subject/saml:SubjectConfirmation/*")
        return service_provider["entityId"] in self.get_audiences() and any(
            confirmation.get("InResponseTo") == request_id
            and confirmation.get("Recipient") == service_provider["assertionConsumerService"]["url"]
            and confirmation.get("NotOnOrAfter")
            for confirmation in confirmations
        )


class SamlAuth(OneLogin_Saml2_Auth):
    """A SAML request or response."""

    response_class = SamlResponse


def acs_url(organization_id: str) -> str:
    """Return the URL that the provider posts its responses to."""
    return absolute(f"/sso/{organization_id}/acs")


def entity_id(organization_id: str) -> str:
    """Return our entity id at the provider."""
    return absolute(f"/sso/{organization_id}")


def read_metadata(*, url: str, xml: str) -> dict[str, Any]:
    """Return a provider's entity id, address and certificates from its metadata, which is fetched
    from `url` or pasted as `xml`. Raises InvalidValue."""
    raw = fetch(url) if url else xml.strip().encode()
    if not raw or len(raw) > METADATA_BYTES_MAX:
        raise InvalidValue("Enter the provider's metadata or its URL.", param="metadata")
    try:
        parsed = OneLogin_Saml2_IdPMetadataParser.parse(raw).get("idp", {})
    except Exception as error:  # The input is untrusted, and the parser may raise anything.
        raise InvalidValue("This is not SAML metadata.", param="metadata") from error
    certificates = _certificates(parsed)
    entity, endpoint = parsed.get("entityId", ""), parsed.get("singleSignOnService", {})
    has_redirect = endpoint.get("binding") == Names.BINDING_HTTP_REDIRECT
    if not entity or not endpoint.get("url") or not has_redirect:
        raise InvalidValue(
            "The metadata has no identity provider with an HTTP-Redirect endpoint.",
            param="metadata",
        )
    return {
        "entity_id": entity[:2000],
        "sso_url": require_url(endpoint["url"]),
        "certificates": certificates,
    }


def authorization_url(connection: SsoConnection) -> tuple[str, str]:
    """Return the URL to send the browser to, and the request id for its session."""
    auth = _auth(connection, {})
    url = auth.login(return_to=acs_url(connection.organization_id))
    return str(url), str(auth.get_last_request_id())


def verify_response(
    connection: SsoConnection, response: str, *, request_id: str
) -> IdentityAssertion:
    """Return the identity in a response. It must be signed by the provider, meant for us and for
    this request, and current.

    Raises ServiceError.
    """
    auth = _auth(connection, {"SAMLResponse": response})
    try:
        auth.process_response(request_id=request_id)
    except BROKEN as error:
        raise InvalidValue("The provider's response cannot be read.") from error
    if auth.get_errors() or not auth.is_authenticated():
        raise InvalidValue(f"The provider's response is not valid: {auth.get_last_error_reason()}.")
    attributes = auth.get_attributes()
    email = _email(auth, attributes)
    is_transient = auth.get_nameid_format() == Names.NAMEID_TRANSIENT
    return IdentityAssertion(
        subject=email.lower() if is_transient else str(auth.get_nameid()),
        email=email,
        values=tuple(attributes.get(connection.role_claim, [])) if connection.role_claim else None,
    )


def _email(auth: SamlAuth, attributes: dict[str, list[str]]) -> str:
    for name in EMAIL_ATTRIBUTES:
        if attributes.get(name):
            return str(attributes[name][0])
    if "@" in str(auth.get_nameid()):
        return str(auth.get_nameid())
    raise NotPermitted("The provider sent no email address. Add an attribute named email.")


def _certificates(parsed: dict[str, Any]) -> list[str]:
    """Return the certificates that responses may be signed by. Raises InvalidValue."""
    listed = [*parsed.get("x509certMulti", {}).get("signing", []), parsed.get("x509cert")]
    certificates = [certificate for certificate in listed if certificate][:CERTIFICATES_MAX]
    try:
        for certificate in certificates:
            load_der_x509_certificate(b64decode(certificate))
    except ValueError as error:
        raise InvalidValue(
            "A certificate in the metadata cannot be read.", param="metadata"
        ) from error
    if not certificates:
        raise InvalidValue("The metadata has no signing certificate.", param="metadata")
    return list(dict.fromkeys(certificates))


def _auth(connection: SsoConnection, posted: dict[str, str]) -> SamlAuth:
    """Return python3-saml's object for the connection and a request to our configured address."""
    acs = urlsplit(acs_url(connection.organization_id))
    request = {
        "https": "on" if settings.CONFIG.is_https else "off",
        "http_host": acs.netloc,
        "script_name": acs.path,
        "get_data": {},
        "post_data": posted,
    }
    return SamlAuth(request, old_settings=_settings(connection))


def _settings(connection: SsoConnection) -> dict[str, Any]:
    provider = connection.provider
    return {
        "strict": True,
        "sp": {
            "entityId": entity_id(connection.organization_id),
            "assertionConsumerService": {
                "url": acs_url(connection.organization_id),
                "binding": Names.BINDING_HTTP_POST,
            },
            "NameIDFormat": Names.NAMEID_UNSPECIFIED,
        },
        "idp": {
            "entityId": provider["entity_id"],
            "singleSignOnService": {
                "url": provider["sso_url"],
                "binding": Names.BINDING_HTTP_REDIRECT,
            },
            "x509certMulti": {"signing": provider["certificates"], "encryption": []},
        },
        "security": {
            "requestedAuthnContext": False,
            "rejectDeprecatedAlgorithm": True,
            "wantNameId": True,
            "wantAttributeStatement": False,  # The NameID may be the only content.
            "allowRepeatAttributeName": True,
        },
    }
