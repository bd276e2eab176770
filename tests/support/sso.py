"""Signing in by a provider, as a browser does it."""

import re
from html import unescape
from urllib.parse import urlsplit

from django.test import Client

from control.sso import services
from control.sso.models import Domain
from tests.support.identity_providers import OidcProvider, SamlProvider
from tests.support.name_server import NameServer
from tests.support.organizations import House

CONSOLE = "http://127.0.0.1:8700"


def verify(house: House, names: NameServer, name: str) -> Domain:
    """Prove a domain by a record in the DNS."""
    domain = services.add_domain(actor=house.actor, organization=house.organization, name=name)
    names.texts[domain.record_name] = [domain.record_value]
    return services.verify_domain(
        actor=house.actor, organization=house.organization, domain_id=domain.id
    )


def begin(client: Client, email: str, **fields: str) -> str:
    """Return where the page for an address leads to."""
    reply = client.post("/sso/", {"email": email, **fields})
    found = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', reply.content.decode())
    assert found, reply.content.decode()
    return unescape(found[1])


def come_back(client: Client, address: str):
    """Follow the provider's redirect to us."""
    parts = urlsplit(address)
    return client.get(f"{parts.path}?{parts.query}")


def sign_in(client: Client, provider: OidcProvider, email: str, subject: str = "", **claims):
    """Sign in by an OpenID provider that tells these claims; return our answer to it."""
    subject = subject or email
    provider.know(subject, **{"email": email, **claims})
    return come_back(client, provider.sign_in(begin(client, email), subject))


def sign_in_by_saml(
    client: Client, provider: SamlProvider, house: House, email: str, subject: str = "", **fields
):
    """Sign in by a SAML provider; return our answer to its answer."""
    answer = provider.sign_in(begin(client, email), subject or email, email, **fields)
    return post_answer(client, house, answer)


def post_answer(client: Client, house: House, answer: str):
    return client.post(f"/sso/{house.id}/acs", {"SAMLResponse": answer, "again": "1"})


def who(client: Client) -> str | None:
    """Return whose session it is."""
    return client.session.get("_auth_user_id")
