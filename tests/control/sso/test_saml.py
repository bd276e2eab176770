"""Sign-in by SAML, with a real provider on pysaml2."""

import base64
import re
import zlib
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest
from django.test import Client
from onelogin.saml2.utils import OneLogin_Saml2_Utils

from control.accounts.models import User
from control.errors import InvalidValue
from control.sso.connections import create_saml_connection, set_role_mapping
from control.sso.models import SsoConnection
from tests.fixtures.identity_providers import SamlProvider, running_saml
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.sso import begin, post_answer, sign_in_by_saml, who

pytestmark = pytest.mark.integration
EMAIL = "grace@acme.example"


@pytest.fixture
def joined(acme: SeededOrganization, saml: SamlProvider) -> SsoConnection:
    return set_up(acme, saml.metadata_url)


def set_up(org: SeededOrganization, url: str = "", xml: str = "") -> SsoConnection:
    return create_saml_connection(
        actor=org.actor, organization=org.organization, metadata_url=url, metadata=xml
    )


def refusal(reply) -> str:
    assert reply.status_code == 403
    return str(reply.context["reason"])


def altered(answer: str, pattern: str, by: str) -> str:
    """Return an answer with one part of its XML changed."""
    text = base64.b64decode(answer).decode()
    changed = re.sub(pattern, by, text, count=1, flags=re.S)
    assert changed != text
    return base64.b64encode(changed.encode()).decode()


def asking(address: str, pattern: str, by: str) -> str:
    """Return the address of a question with one part of its XML changed."""
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    text = zlib.decompress(base64.b64decode(query["SAMLRequest"]), -15).decode()
    changed = re.sub(pattern, by, text, count=1)
    assert changed != text
    squeezed = zlib.compress(changed.encode(), wbits=-15)
    query["SAMLRequest"] = base64.b64encode(squeezed).decode()
    return parts._replace(query=urlencode(query)).geturl()


def test_a_newcomer_gets_a_seat(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    assert sign_in_by_saml(client, saml, acme, EMAIL).status_code == 302
    user = User.objects.get(email=EMAIL)
    assert who(client) == user.id
    assert acme.seat(user).role == "developer"


def test_roles_follow_an_attribute(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    set_role_mapping(
        actor=acme.actor, organization=acme.organization, role_claim="groups",
        role_map={"it": "admin"}, default_role="viewer",
    )  # fmt: skip
    sign_in_by_saml(client, saml, acme, EMAIL, groups="sales,it")
    assert acme.seat(User.objects.get(email=EMAIL)).role == "admin"
    sign_in_by_saml(client, saml, acme, EMAIL, groups="sales")
    assert acme.seat(User.objects.get(email=EMAIL)).role == "viewer"


def test_an_answer_from_another_page_is_sent_again_from_ours(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    """A browser sends no session with it."""
    answer = saml.sign_in(begin(client, EMAIL), EMAIL, EMAIL)
    reply = Client().post(f"/sso/{acme.id}/acs", {"SAMLResponse": answer})
    assert reply.status_code == 200
    assert answer in reply.content.decode().replace("&#x27;", "'")
    assert "penstock_session" not in reply.cookies
    assert post_answer(client, acme, answer).status_code == 302


def test_an_answer_counts_once_and_to_who_asked(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    answer = saml.sign_in(begin(client, EMAIL), EMAIL, EMAIL)
    victim = Client()
    assert "Start again" in refusal(post_answer(victim, acme, answer))
    begin(victim, EMAIL)
    assert "InResponseTo" in refusal(post_answer(victim, acme, answer))
    assert post_answer(client, acme, answer).status_code == 302
    begin(client, EMAIL)
    assert "InResponseTo" in refusal(post_answer(client, acme, answer))


@pytest.mark.parametrize(
    ("pattern", "by"),
    [
        (EMAIL, "owner@acme.example"),
        (r"<ns2:Signature .*?</ns2:Signature>", ""),
        (r"(?<=SignatureValue>)[^<]{8}", "AAAAAAAA"),
        (r'(?<=Destination=")[^"]+', "http://127.0.0.1:8700/sso/other/acs"),
        (r"(?<=Audience>)[^<]+", "https://other.example"),
        (r'NotOnOrAfter="20..', 'NotOnOrAfter="1999'),
        (r">persistent<|(?<=persistent\">)[^<]+", "owner<!-- -->"),
    ],
)
def test_a_changed_answer_is_refused(  # noqa: PLR0917
    pattern: str,
    by: str,
    joined: SsoConnection,
    acme: SeededOrganization,
    saml: SamlProvider,
    client: Client,
) -> None:
    answer = saml.sign_in(begin(client, EMAIL), EMAIL, EMAIL)
    refusal(post_answer(client, acme, altered(answer, pattern, by)))
    assert who(client) is None


def test_an_answer_signed_by_somebody_else_is_refused(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    with running_saml(f"{saml.url}/idp") as forger:
        question = begin(client, EMAIL).replace(saml.url, forger.url)
        answer = forger.sign_in(question, EMAIL, EMAIL)
    assert "is not valid" in refusal(post_answer(client, acme, answer))


def test_a_second_assertion_around_the_signed_one_is_refused(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    answer = saml.sign_in(begin(client, EMAIL), EMAIL, EMAIL)
    text = base64.b64decode(answer).decode()
    assertion = re.search(r"<ns1:Assertion .*?</ns1:Assertion>", text, re.S)
    assert assertion
    forged = re.sub(r"<ns2:Signature .*?</ns2:Signature>", "", assertion[0], flags=re.S)
    forged = forged.replace(EMAIL, "owner@acme.example").replace('ID="id-', 'ID="id-0')
    for wrapped in (forged + assertion[0], assertion[0] + forged):
        changed = base64.b64encode(text.replace(assertion[0], wrapped).encode()).decode()
        refusal(post_answer(client, acme, changed))
        begin(client, EMAIL)
    assert who(client) is None


def test_another_organizations_provider_cannot_speak_of_our_addresses(
    joined: SsoConnection, evil: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    set_up(evil, saml.metadata_url)
    answer = saml.sign_in(begin(client, "m@outsider.example"), "m", "owner@acme.example")
    assert "not a verified domain" in refusal(post_answer(client, evil, answer))


@pytest.mark.parametrize(
    ("asked", "pattern", "by"),
    [
        ("", r' InResponseTo="[^"]+"', ""),
        (r'(?<= ID=")[^"]+', r'(?<= InResponseTo=")[^"]+', "{id}"),
        (r'(?<= ID=")[^"]+', r' InResponseTo="[^"]+"', ""),
        (r'(?<=ServiceURL=")[^"]+', r'(?<=Destination=")[^"]+', "{acs}"),
        (r"(?<=Issuer>)[^<]+", "", ""),
    ],
    ids=["no question", "another question", "another, and none", "another place", "another reader"],
)
def test_what_is_signed_answers_this_question_here(  # noqa: PLR0917
    asked: str, pattern: str, by: str,
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client,
) -> None:  # fmt: skip
    """Whatever the provider signed for somebody else, or to somebody else's question, is not made
    ours by what stands around it, unsigned."""
    question = begin(client, EMAIL)
    other = "id-other" if "ID=" in asked else "https://other.example/x"
    sent = asking(question, asked, other) if asked else question
    answer = saml.sign_in(sent, EMAIL, EMAIL)
    if pattern:
        kept = client.session["sso"]["request_id"]
        acs = f"http://127.0.0.1:8700/sso/{acme.id}/acs"
        answer = altered(answer, pattern, by.format(id=kept, acs=acs))
    if not asked:
        # As it came from a sign-in of another browser's, which somebody overheard.
        begin(client, EMAIL)
    refusal(post_answer(client, acme, answer))
    assert who(client) is None


def test_an_answer_is_worth_nothing_minutes_later(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client, monkeypatch
) -> None:
    answer = saml.sign_in(begin(client, EMAIL), EMAIL, EMAIL)
    later = OneLogin_Saml2_Utils.now() + 360
    monkeypatch.setattr(OneLogin_Saml2_Utils, "now", lambda: later)
    assert "is not valid" in refusal(post_answer(client, acme, answer))


def test_a_weak_signature_is_none(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    answer = saml.sign_in(begin(client, EMAIL), EMAIL, EMAIL, weak="1")
    assert "Deprecated" in refusal(post_answer(client, acme, answer))


def test_where_to_go_next_is_not_the_providers_to_say(
    joined: SsoConnection, acme: SeededOrganization, saml: SamlProvider, client: Client
) -> None:
    answer = saml.sign_in(begin(client, EMAIL, next=f"/{acme.id}/team"), EMAIL, EMAIL)
    sent = {"SAMLResponse": answer, "again": "1", "RelayState": "https://evil.example/"}
    reply = client.post(f"/sso/{acme.id}/acs", sent)
    assert reply["location"] == f"/{acme.id}/team"


def test_metadata_may_be_pasted(acme: SeededOrganization, saml: SamlProvider) -> None:
    found = set_up(acme, xml=httpx.get(saml.metadata_url, timeout=60).text)
    assert found.issuer == f"{saml.url}/idp"
    assert found.provider["sso_url"] == f"{saml.url}/sso"


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "nonsense",
        "<a/>",
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><a>&b;</a>',
    ],
)
def test_broken_metadata_is_refused(xml: str, acme: SeededOrganization, names: object) -> None:
    with pytest.raises(InvalidValue):
        set_up(acme, xml=xml)


@pytest.mark.parametrize("url", ["http://10.0.0.1/sso", "javascript:alert(1)", "//evil.example"])
def test_metadata_lead_to_no_strange_place(
    url: str, acme: SeededOrganization, saml: SamlProvider
) -> None:
    xml = httpx.get(saml.metadata_url, timeout=60).text
    with pytest.raises(InvalidValue):
        set_up(acme, xml=xml.replace(f"{saml.url}/sso", url))
    with pytest.raises(InvalidValue):
        set_up(acme, url="http://169.254.169.254/metadata")


@pytest.mark.parametrize("answer", ["", "nonsense", base64.b64encode(b"<a/>").decode()])
def test_nonsense_is_refused(
    answer: str, joined: SsoConnection, acme: SeededOrganization, client: Client
) -> None:
    begin(client, EMAIL)
    refusal(post_answer(client, acme, answer))
