"""Two tabs: an edit that was begun before another one was saved overwrites nothing unseen."""

from collections.abc import Iterator
from typing import Any

import pytest
from django import forms
from django.db import transaction
from django.test import Client

from control.drafts.origin import FIELD
from control.forms import VERSION, VersionedForm
from control.sso.connections import create_scim_token
from control.sso.models import Protocol, SsoConnection
from tests.fixtures.database import let_transaction_last
from tests.fixtures.html_forms import form_to, forms_of
from tests.fixtures.shared_organization import SharedOrganization
from tests.web.sections import MAY_LOOK, address_of
from web.console.api_keys import ApiKeyCreateForm, ApiKeyRotateForm
from web.console.billing.forms import TopUpForm
from web.console.team import InviteMemberForm

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
Fields = dict[str, Any]
EDITS: dict[str, tuple[str, Fields, Fields]] = {
    "settings_rename": ("settings", {"name": "Alpha"}, {"name": "Beta"}),
    "project_rename": ("project", {"name": "Alpha"}, {"name": "Beta"}),
    "project_origins": (
        "project",
        {"allowed_origins": "https://a.example"},
        {"allowed_origins": "https://b.example"},
    ),
    "key_edit": (
        "key",
        {"allowed_models": "small", "allowed_networks": "10.9.0.0/16"},
        {"name": "Renamed"},
    ),
    "member_role": ("member", {"role": "billing"}, {"role": "developer"}),
    "webhook_update": (
        "webhook",
        {"event_types": ["invoice.finalized", "api_key.created"]},
        {"description": "Mine"},
    ),
    "limit": ("limit", {"percents": "10, 20"}, {"limit": "77.50"}),
    "limit_alerts": ("limits", {"low_runway_days": "9"}, {"unusual_factor": "7"}),
    "rates": ("rates", {"requests_per_minute": "7"}, {"concurrent_requests": "9"}),
    "billing_profile": (
        "billing_profile",
        {"city": "Bonn", "country": "DE"},
        {"recipients": "ada@acme.example"},
    ),
    "billing_automatic": ("billing", {"amount_cents": "70"}, {"threshold_cents": "12"}),
    "sso_oidc": ("sso", {"client_id": "alpha"}, {"issuer": "https://b.example"}),
    "sso_saml": (
        "sso",
        {"metadata_url": "https://a.example/x"},
        {"metadata_url": "https://b.example/x"},
    ),
    "sso_roles": ("sso", {"role_claim": "groups"}, {"default_role": "viewer"}),
    "scim_heir": ("sso", {"heir": "{heir}"}, {"heir": "{owner_member_id}"}),
}
"""The page of each edit form, what an earlier tab changes, and what a later one does."""
BY_PROVIDERS = {"sso_oidc": "client_id", "sso_saml": "metadata_url"}
"""Forms whose save asks a provider's server; the field that somebody else changes."""
WITH_DEFAULTS = {ApiKeyCreateForm, ApiKeyRotateForm, InviteMemberForm, TopUpForm}
"""Forms that begin with values, but change nothing that exists."""


@pytest.fixture
def ids(shared: SharedOrganization) -> Iterator[dict[str, str]]:
    """The organization with SSO and SCIM, whose changes are taken back."""
    with transaction.atomic():
        let_transaction_last()
        SsoConnection.objects.create(
            organization=shared.org.organization,
            protocol=Protocol.OIDC,
            issuer="https://old.example",
            client_id="old",
        )
        create_scim_token(actor=shared.org.actor, organization=shared.org.organization)
        heir = shared.org.seat(shared.org.join("developer")).id
        yield shared.ids | {"owner_member_id": shared.org.seat(shared.org.owner).id, "heir": heir}
        transaction.set_rollback(True)


def page_of(name: str, ids: dict[str, str]) -> str:
    query = f"?owner={ids['project_id']}" if name == "rates" else ""
    return address_of(EDITS[name][0], ids) + query


def filled(fields: Fields, ids: dict[str, str]) -> Fields:
    return {
        name: value.format(**ids) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def held(client: Client, name: str, ids: dict[str, str]) -> dict[str, list[str]]:
    """Return what a form holds when its page is opened."""
    page = client.get(page_of(name, ids))
    values = form_to(page.content, address_of(name, ids), page_of(name, ids)).values
    return {each: value for each, value in values.items() if each != FIELD}


def as_lists(fields: Fields) -> dict[str, list[str]]:
    return {name: value if isinstance(value, list) else [value] for name, value in fields.items()}


def test_every_form_that_shows_what_exists_has_its_version(
    shared: SharedOrganization, ids: dict[str, str]
) -> None:
    paths = {address_of(name, ids): name for name in EDITS}
    with_version, seen = set(), set()
    for name in MAY_LOOK:
        url = address_of(name, ids)
        reply = shared.browsers["owner"].get(url)
        if reply.streaming or not reply.headers["content-type"].startswith("text/html"):
            continue
        for form in forms_of(reply.content, url) if reply.content else ():
            if VERSION in form.values:
                with_version.add(paths[form.path])
        for context in reply.context or ():
            for value in context.flatten().values():
                seen |= {type(each) for each in flat(value) if each.initial}
    assert with_version == set(EDITS)
    assert {each for each in seen if not issubclass(each, VersionedForm)} == WITH_DEFAULTS


def flat(value: Any) -> Iterator[forms.Form]:
    """Return the forms in a value of a template's context."""
    if isinstance(value, forms.Form):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from flat(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            each = getattr(value, name, None)
            if isinstance(each, forms.Form):
                yield each


@pytest.mark.parametrize("name", BY_PROVIDERS)
@pytest.mark.parametrize(
    "change", [{"protocol": Protocol.SAML, "issuer": "x"}, {"provider": {"key": "new"}}]
)
def test_another_provider_is_noticed_whatever_it_is(
    shared: SharedOrganization, ids: dict[str, str], name: str, change: dict[str, Any]
) -> None:
    client, url = shared.browsers["owner"], address_of(name, ids)
    older = held(client, name, ids) | as_lists(EDITS[name][2])
    SsoConnection.objects.update(**change)
    refused = client.post(url, older)
    assert refused.status_code == 409
    assert "was changed after you opened the page" in refused.content.decode()


@pytest.mark.parametrize("name", EDITS)
def test_the_older_of_two_tabs_is_told_and_loses_nothing(
    shared: SharedOrganization, ids: dict[str, str], name: str
) -> None:
    client, url = shared.browsers["owner"], address_of(name, ids)
    theirs, mine = (as_lists(filled(each, ids)) for each in EDITS[name][1:])
    older = held(client, name, ids)
    if name in BY_PROVIDERS:
        changed = {field: value[0] for field, value in theirs.items()}
        SsoConnection.objects.update(**changed)
        older |= {"client_secret": ["typed"]} if name == "sso_oidc" else {}
    else:
        first = client.post(url, older | theirs)
        assert first.status_code == 302
    saved = held(client, name, ids)
    assert {field: saved[field] for field in theirs} == theirs

    refused = client.post(url, older | mine)
    page = refused.content.decode()
    assert refused.status_code == 409
    assert "was changed after you opened the page" in page
    assert page.count(". It was: ") == len(theirs.keys() - mine.keys())
    assert page.count(". You entered: ") == len(theirs.keys() & mine.keys())
    assert page.count("Enter this again") == (name == "sso_oidc")
    assert held(client, name, ids) == saved, "something was saved"
    shown = form_to(refused.content, url, url).values
    expected = saved | mine
    assert {each: shown[each] for each in expected} == expected
    if name not in BY_PROVIDERS:
        again = client.post(url, shown)
        assert again.status_code == 302
        now = held(client, name, ids)
        wanted = theirs | mine
        assert {field: now[field] for field in wanted} == wanted


def test_the_same_edit_in_two_tabs_is_no_conflict(
    shared: SharedOrganization, ids: dict[str, str]
) -> None:
    client, url = shared.browsers["owner"], address_of("key_edit", ids)
    older = held(client, "key_edit", ids)
    for _ in range(2):
        assert client.post(url, older | {"name": "Same"}).status_code == 302


def test_limits_of_another_owner_than_the_form_was_made_for_are_shown_first(
    shared: SharedOrganization, ids: dict[str, str]
) -> None:
    client, url = shared.browsers["owner"], address_of("rates", ids)
    blank = form_to(client.get(url).content, url).values
    assert client.post(url, blank | {"owner": ids["key_id"], "requests_per_minute": "5"}).url
    refused = client.post(url, blank | {"owner": ids["key_id"], "concurrent_requests": "9"})
    assert refused.status_code == 409
    shown = form_to(refused.content, url).values
    assert (shown["requests_per_minute"], shown["concurrent_requests"]) == (["5"], ["9"])
