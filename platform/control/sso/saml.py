"""SAML 2.0 by python3-saml: the provider's metadata, our question, and the checks of its answer.

An answer counts only to a question of the same browser, once: `InResponseTo` must be the id that
its session keeps. Answers that nobody asked for are refused. The library takes an answer that does
not say what it answers; ours must say so where it is signed.
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
"""What providers call an address, ours first."""
BROKEN = (OneLogin_Saml2_Error, OneLogin_Saml2_ValidationError, LxmlError, ValueError, KeyError)


class SamlResponse(OneLogin_Saml2_Response):
    """A provider's answer, whose signed part says for whom, where to and to what it is: whatever
    is around that part, anybody could have changed."""

    def is_valid(
        self, request_data: Any, request_id: str | None = None, raise_exceptions: bool = False
    ) -> bool:
        """Tell whether it holds, here and now."""
        if not super().is_valid(request_data, request_id, raise_exceptions):
            return False
        if not self._is_bound(self._settings.get_sp_data(), request_id):
            self._error = "it does not say that it answers this question, and nobody else's"
            return False
        return True

    def _is_bound(self, us: dict[str, Any], request_id: str | None) -> bool:
        """Tell so; whatever the query finds is of the signed assertion."""
        told = self._query_assertion("/saml:Subject/saml:SubjectConfirmation/*")
        return us["entityId"] in self.get_audiences() and any(
            each.get("InResponseTo") == request_id
            and each.get("Recipient") == us["assertionConsumerService"]["url"]
            and each.get("NotOnOrAfter")
            for each in told
        )


class SamlAuth(OneLogin_Saml2_Auth):
    """A question or an answer."""

    response_class = SamlResponse


def acs_url(organization_id: str) -> str:
    """Return where the provider sends its answers."""
    return absolute(f"/sso/{organization_id}/acs")


def entity_id(organization_id: str) -> str:
    """Return what we are called at the provider."""
    return absolute(f"/sso/{organization_id}")


def read_metadata(*, url: str, xml: str) -> dict[str, Any]:
    """Return a provider's entity id, address and certificates from its metadata: at an address, or
    pasted. Raises InvalidValue."""
    raw = fetch(url) if url else xml.strip().encode()
    if not raw or len(raw) > METADATA_BYTES_MAX:
        raise InvalidValue(
            "Give the provider's metadata, or the address that it is at.", param="metadata"
        )
    try:
        found = OneLogin_Saml2_IdPMetadataParser.parse(raw).get("idp", {})
    except Exception as error:  # whatever the parser meets in what anybody may paste
        raise InvalidValue("This is no SAML metadata.", param="metadata") from error
    certificates = _certificates(found)
    entity, place = found.get("entityId", ""), found.get("singleSignOnService", {})
    if not entity or not place.get("url") or place.get("binding") != Names.BINDING_HTTP_REDIRECT:
        raise InvalidValue(
            "The metadata names no provider with an address for HTTP-Redirect.", param="metadata"
        )
    return {
        "entity_id": entity[:2000],
        "sso_url": require_url(place["url"]),
        "certificates": certificates,
    }


def authorization_url(connection: SsoConnection) -> tuple[str, str]:
    """Return where the browser goes, and the id of the question that its session keeps."""
    auth = _auth(connection, {})
    url = auth.login(return_to=acs_url(connection.organization_id))
    return str(url), str(auth.get_last_request_id())


def verify_response(
    connection: SsoConnection, response: str, *, request_id: str
) -> IdentityAssertion:
    """Return whom an answer speaks of: signed by the provider, for us, to this question, now.

    Raises ServiceError.
    """
    auth = _auth(connection, {"SAMLResponse": response})
    try:
        auth.process_response(request_id=request_id)
    except BROKEN as error:
        raise InvalidValue("The provider's answer makes no sense.") from error
    if auth.get_errors() or not auth.is_authenticated():
        raise InvalidValue(f"The provider's answer does not hold: {auth.get_last_error_reason()}.")
    attributes = auth.get_attributes()
    email = _email(auth, attributes)
    is_passing = auth.get_nameid_format() == Names.NAMEID_TRANSIENT
    return IdentityAssertion(
        subject=email.lower() if is_passing else str(auth.get_nameid()),
        email=email,
        values=tuple(attributes.get(connection.role_claim, [])) if connection.role_claim else None,
    )


def _email(auth: SamlAuth, attributes: dict[str, list[str]]) -> str:
    for name in EMAIL_ATTRIBUTES:
        if attributes.get(name):
            return str(attributes[name][0])
    if "@" in str(auth.get_nameid()):
        return str(auth.get_nameid())
    raise NotPermitted("The provider sent no e-mail address: add an attribute named email.")


def _certificates(found: dict[str, Any]) -> list[str]:
    """Return the certificates that answers may be signed by. Raises InvalidValue."""
    several = found.get("x509certMulti", {}).get("signing", [])
    certificates = [each for each in [*several, found.get("x509cert")] if each][:CERTIFICATES_MAX]
    try:
        for each in certificates:
            load_der_x509_certificate(b64decode(each))
    except ValueError as error:
        raise InvalidValue(
            "A certificate in the metadata cannot be read.", param="metadata"
        ) from error
    if not certificates:
        raise InvalidValue("The metadata names no certificate to sign with.", param="metadata")
    return list(dict.fromkeys(certificates))


def _auth(connection: SsoConnection, posted: dict[str, str]) -> SamlAuth:
    """Return python3-saml's view of us, of the provider, and of a request to the address that we
    are configured to have."""
    acs = urlsplit(acs_url(connection.organization_id))
    asked = {
        "https": "on" if settings.CONFIG.is_https else "off",
        "http_host": acs.netloc,
        "script_name": acs.path,
        "get_data": {},
        "post_data": posted,
    }
    return SamlAuth(asked, old_settings=_settings(connection))


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
            "wantAttributeStatement": False,  # the NameID may be all there is
            "allowRepeatAttributeName": True,
        },
    }
