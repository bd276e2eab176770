"""A SAML identity provider on pysaml2, run as `python -m tests.support.saml_idp PORT`.

pysaml2 signs with the program `xmlsec1`, or by a package that is no longer kept; this one signs
with the same library's Python binding. It takes whatever service provider asks, and signs in
whoever its form names.
"""

import sys
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit
from zlib import decompress

import xmlsec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from lxml import etree
from saml2 import BINDING_HTTP_POST, BINDING_HTTP_REDIRECT, sigver
from saml2.config import IdPConfig
from saml2.metadata import entity_descriptor
from saml2.saml import NAMEID_FORMAT_PERSISTENT, NameID
from saml2.server import Server
from saml2.xmldsig import DIGEST_SHA256, SIG_RSA_SHA1, SIG_RSA_SHA256

DS = "{http://www.w3.org/2000/09/xmldsig#}"
SP = """<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="{entity}">
<md:SPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">
<md:AssertionConsumerService Binding="{binding}" Location="{acs}" index="0"/>
</md:SPSSODescriptor></md:EntityDescriptor>"""
FORM = """<!doctype html><title>Provider</title><form method="post">
<label>Subject <input name="subject"></label><label>Address <input name="email"></label>
<label>Groups <input name="groups"></label><button>Sign in</button></form>"""
ANSWER = """<!doctype html><title>Answer</title><form method="post" action="{acs}">
<input type="hidden" name="SAMLResponse" value="{response}">
<input type="hidden" name="RelayState" value="{relay}"><button>Go back</button></form>"""


class Signing(sigver.CryptoBackend):
    """Signs with the binding of xmlsec."""

    @property
    def version(self) -> str:
        return "1.3.0"

    def sign_statement(self, statement, node_name, key_file, node_id):
        tree = etree.fromstring(statement.encode() if isinstance(statement, str) else statement)
        xmlsec.tree.add_ids(tree, ["ID"])
        node = next(one for one in tree.iter() if one.get("ID") == node_id)
        context = xmlsec.SignatureContext()
        context.key = xmlsec.Key.from_file(key_file, xmlsec.constants.KeyDataFormatPem)
        context.sign(node.find(f"{DS}Signature"))
        return etree.tostring(tree).decode()


sigver.CryptoBackendXMLSecurity = Signing


def make_pair(folder: Path) -> tuple[str, str]:
    """Write a key and its certificate; return their paths."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp.test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    traditional = serialization.PrivateFormat.TraditionalOpenSSL
    (folder / "key.pem").write_bytes(key.private_bytes(pem, traditional, plain))
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    return str(folder / "key.pem"), str(folder / "cert.pem")


class Provider:
    """The provider at an address; `name` may be another's, whose keys it has not."""

    def __init__(self, base: str, folder: Path, name: str) -> None:
        self.base = base
        self.key, self.certificate = make_pair(folder)
        self.name = name

    def config(self, sp: str | None = None) -> IdPConfig:
        place = (f"{self.base}/sso", BINDING_HTTP_REDIRECT)
        settings = {
            "entityid": self.name,
            "key_file": self.key,
            "cert_file": self.certificate,
            "crypto_backend": "XMLSecurity",
            "service": {
                "idp": {
                    "endpoints": {"single_sign_on_service": [place]},
                    "sign_assertion": True,
                    "policy": {"default": {"lifetime": {"minutes": 5}}},
                }
            },
            **({"metadata": {"inline": [sp]}} if sp else {}),
        }
        return IdPConfig().load(settings)

    def metadata(self) -> str:
        return str(entity_descriptor(self.config()))

    def answer(self, request: str, relay: str, form: dict[str, str]) -> str:
        asked = etree.fromstring(decompress(b64decode(request), -15))
        acs = asked.get("AssertionConsumerServiceURL")
        entity = asked.findtext("{*}Issuer")
        sp = SP.format(entity=entity, acs=acs, binding=BINDING_HTTP_POST)
        response = Server(config=self.config(sp)).create_authn_response(
            {"mail": [form["email"]], "groups": form.get("groups", "").split(",")},
            in_response_to=asked.get("ID"),
            destination=acs,
            sp_entity_id=entity,
            name_id=NameID(format=NAMEID_FORMAT_PERSISTENT, text=form["subject"]),
            authn={"class_ref": "urn:oasis:names:tc:SAML:2.0:ac:classes:Password"},
            sign_assertion=True,
            sign_response=False,
            sign_alg=SIG_RSA_SHA1 if form.get("weak") else SIG_RSA_SHA256,
            digest_alg=DIGEST_SHA256,
        )
        return ANSWER.format(
            acs=acs, response=b64encode(str(response).encode()).decode(), relay=escape(relay)
        )


def main(port: int, name: str) -> None:
    with TemporaryDirectory() as folder:
        base = f"http://127.0.0.1:{port}"
        provider = Provider(base, Path(folder), name or f"{base}/idp")

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_metadata = urlsplit(self.path).path == "/metadata"
                self.reply(provider.metadata() if is_metadata else FORM)

            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {key: values[0] for key, values in parse_qs(sent).items()}
                query = parse_qs(urlsplit(self.path).query)
                relay = query.get("RelayState", [""])[0]
                self.reply(provider.answer(query["SAMLRequest"][0], relay, form))

            def reply(self, text: str) -> None:
                body = text.encode()
                self.send_response(200)
                kind = "text/html" if text.startswith("<!doctype") else "application/xml"
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
