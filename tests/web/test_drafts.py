"""A form that came after the session had ended, or from a page that was opened before a sign-in,
is kept for its sender, shown again, and never sent by itself."""

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth import get_user
from django.db import transaction
from django.test import Client
from django.urls import reverse

from control import encryption
from control.accounts.models import User
from control.drafts import middleware
from control.drafts.middleware import (
    ANONYMOUS_CHARACTERS_MAX,
    CHARACTERS_MAX,
    FORMS_MAX,
    KEPT_SECONDS,
    PURPOSE,
    SESSION_KEY,
)
from control.drafts.origin import FIELD
from control.organizations.models import Invitation, Membership
from control.permissions import Role
from tests.fixtures.database import let_transaction_last
from tests.fixtures.html_forms import CSRF, PageForm, form_to, forms_of
from tests.fixtures.organizations import PASSWORD
from tests.fixtures.routes import routes
from tests.fixtures.second_factor import let_time_pass
from tests.fixtures.shared_organization import SharedOrganization
from tests.web.sections import MAY_CHANGE, MAY_LOOK, address_of
from web.console.base import address
from web.console.sso_forms import METADATA_MAX

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
LOGIN = "/accounts/login/"
FOR_PROGRAMS = ("api", "internal", "scim", "metrics", "static")
ACCOUNT_PAGES = ("console:personal_data", "usersessions_list", "account_change_password")
NOT_SAVED = "This was not saved, because you had to sign in again"
TOO_LONG = "what you entered could not be kept"
WORD = "typed-7"


@pytest.fixture(autouse=True)
def undone(shared: SharedOrganization) -> Iterator[None]:
    with transaction.atomic():
        let_transaction_last()
        yield
        transaction.set_rollback(True)


def next_of(reply) -> str:
    """Return where a redirect to the sign-in page leads afterwards."""
    where = urlsplit(reply.headers["location"])
    assert where.path == LOGIN
    return parse_qs(where.query)["next"][0]


def typed_into(form: PageForm) -> dict[str, list[str]]:
    """Return what the form holds after something was typed into each of its text boxes."""
    texts = form.form.xpath(
        ".//textarea | .//input[not(@type) or @type='text' or @type='email' or @type='url']"
    )
    names = {each.get("name") for each in texts}
    passwords = {each.get("name") for each in form.form.xpath(".//input[@type='password']")}
    return {
        name: [WORD] if name in names else ["s3cret"] if name in passwords else value
        for name, value in form.values.items()
    }


def test_no_sign_in_leads_to_an_address_that_only_takes_post(shared: SharedOrganization) -> None:
    owner, leads = shared.browsers["owner"], {}
    for route in routes():
        if route.room in FOR_PROGRAMS:
            continue
        path = route.path(shared.ids)
        reply = Client().post(path)
        where = urlsplit(reply.headers.get("location", ""))
        if where.path != LOGIN or not where.query:
            continue
        leads[path] = next_of(reply)
    assert len(leads) > len(MAY_CHANGE)
    statuses = {where: owner.get(where).status_code for where in {*leads.values()} - {"/"}}
    failed = {path: where for path, where in leads.items() if statuses.get(where) == 405}
    assert not failed


def test_every_form_comes_back_as_it_was_typed(shared: SharedOrganization) -> None:
    owner, seen = shared.browsers["owner"], set()
    pages = [address_of(name, shared.ids) for name in MAY_LOOK]
    for page in [*pages, *map(reverse, ACCOUNT_PAGES)]:
        reply = owner.get(page)
        if reply.streaming or not reply.headers["content-type"].startswith("text/html"):
            continue
        forms = {each.path: each for each in forms_of(reply.content or b"<p>", page)}
        new = [form for path, form in forms.items() if path not in seen]
        for some in (new[i : i + FORMS_MAX] for i in range(0, len(new), FORMS_MAX)):
            assert_come_back(shared, page, some)
        seen |= forms.keys()
    assert len(seen) > len(MAY_CHANGE) - 10


def assert_come_back(shared: SharedOrganization, page: str, forms: list[PageForm]) -> None:
    client, sent = Client(), {}
    for form in forms:
        sent[form.path] = typed_into(form)
        reply = client.post(form.path, sent[form.path])
        if reply.status_code == 302 and urlsplit(reply.headers["location"]).path == LOGIN:
            assert next_of(reply) == page, form.path
        else:
            del sent[form.path]  # what anybody may do: choose a theme, sign out
    client.force_login(shared.org.owner)
    shown = client.get(page)
    content = shown.content.decode()
    if sent:
        assert NOT_SAVED in content, page
    for path, values in sent.items():
        held = form_to(shown.content, path, page).values
        kept = {
            name: value for name, value in values.items() if name != FIELD and value != ["s3cret"]
        }
        assert {name: held[name] for name in kept} == kept, path
        assert "s3cret" not in content


@pytest.fixture
def invite(shared: SharedOrganization) -> dict[str, str | list[str]]:
    """The owner's form of an invitation, filled in."""
    page = address(shared.org.organization, "team")
    path = address(shared.org.organization, "team_invite")
    form = form_to(shared.browsers["owner"].get(page).content, path, page)
    return form.values | {"email": "new@example.com", "role": "billing"}


def send_late(shared: SharedOrganization, invite: dict[str, str], client: Client) -> str:
    reply = client.post(address(shared.org.organization, "team_invite"), invite)
    return next_of(reply)


def test_a_draft_is_shown_until_it_is_sent(shared: SharedOrganization, invite) -> None:
    client, org = Client(), shared.org.organization
    page = send_late(shared, invite, client)
    assert "new@example.com" not in json.dumps(dict(client.session))
    signed_in = client.post(f"{LOGIN}?{urlencode({'next': page})}", {
        "login": shared.org.owner.email, "password": PASSWORD, "next": page,
    })  # fmt: skip
    assert signed_in.headers["location"] == page
    for _ in range(2):
        shown = client.get(page).content
        assert NOT_SAVED in shown.decode()
        values = form_to(shown, address(org, "team_invite"), page).values
        assert (values["email"], values["role"]) == (["new@example.com"], ["billing"])
        assert not Invitation.objects.filter(email="new@example.com").exists()
    assert NOT_SAVED not in client.get(address(org, "settings")).content.decode()
    assert client.post(address(org, "team_invite"), values).status_code == 302
    assert NOT_SAVED not in client.get(page).content.decode()


def test_a_refused_form_that_came_late_goes_back_to_its_page(
    shared: SharedOrganization, invite
) -> None:
    path = address(shared.org.organization, "team_invite")
    refused = shared.browsers["owner"].post(path, invite | {"email": "nobody"})
    assert refused.status_code == 400
    again = form_to(refused.content, path).values
    assert next_of(Client().post(path, again)) == address(shared.org.organization, "team")


def test_nobody_else_gets_it(shared: SharedOrganization, invite) -> None:
    colleague = User.objects.create_user("colleague@acme.example")
    organization = shared.org.organization
    Membership.objects.create(organization=organization, user=colleague, role=Role.ADMIN)
    client = Client()
    page = send_late(shared, invite, client)
    client.force_login(colleague)
    shown = client.get(page).content.decode()
    assert "new@example.com" not in shown
    assert NOT_SAVED not in shown
    assert not client.session[SESSION_KEY]


def test_a_draft_is_shown_for_half_an_hour(
    shared: SharedOrganization, invite, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    page = send_late(shared, invite, client)
    client.force_login(shared.org.owner)
    now = middleware.time.time()
    monkeypatch.setattr(middleware.time, "time", lambda: now + 31 * 60)
    assert NOT_SAVED not in client.get(page).content.decode()


def test_an_expired_draft_is_deleted_and_the_session_with_it(
    shared: SharedOrganization, invite, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    send_late(shared, invite, client)
    assert client.session.get_expiry_age() == KEPT_SECONDS
    client.force_login(shared.org.owner)
    assert client.session.get_expiry_age() > KEPT_SECONDS
    now = middleware.time.time()
    monkeypatch.setattr(middleware.time, "time", lambda: now + KEPT_SECONDS)
    client.get(address(shared.org.organization, "team"))
    assert client.session[SESSION_KEY] == []


@pytest.mark.parametrize(
    ("change", "is_told"),
    [({FIELD: "forged"}, False), ({"email": "x" * CHARACTERS_MAX}, True), ({}, True)],
    ids=["of no page", "without end", "one of too many"],
)
def test_what_cannot_be_kept_is_told(
    shared: SharedOrganization, invite, change, is_told, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not change:
        monkeypatch.setattr(middleware.ratelimit, "consume", lambda *_, **__: None)
    client = Client()
    client.post(address(shared.org.organization, "team_invite"), invite | change)
    assert SESSION_KEY not in client.session
    assert (TOO_LONG in client.get(LOGIN).content.decode()) == is_told


def test_a_page_of_nobody_keeps_less_and_speaks_of_no_sign_in(shared: SharedOrganization) -> None:
    client, page = Client(enforce_csrf_checks=True), reverse("account_signup")
    client.get(LOGIN)
    form = form_to(Client().get(page).content, page, page).values
    client.post(page, form | {"email": "x" * ANONYMOUS_CHARACTERS_MAX})
    assert SESSION_KEY not in client.session
    client.post(page, form | {"email": WORD, "password1": "s3cret"})
    shown = client.get(page).content.decode()
    assert "This was not sent, because the page was open for too long" in shown
    assert "Enter them again: Password" in shown
    assert form_to(shown.encode(), page, page).values["email"] == [WORD]


def test_a_secret_that_is_not_kept_is_asked_for_again(shared: SharedOrganization) -> None:
    page = address(shared.org.organization, "sso")
    path = address(shared.org.organization, "sso_oidc")
    form = form_to(shared.browsers["owner"].get(page).content, path, page).values
    client = Client()
    client.post(path, form | {"client_id": WORD, "client_secret": "s3cret"})
    client.force_login(shared.org.owner)
    assert "Enter them again: Client secret." in client.get(page).content.decode()


def test_the_metadata_of_a_saml_provider_is_kept(shared: SharedOrganization) -> None:
    page = address(shared.org.organization, "sso")
    path = address(shared.org.organization, "sso_saml")
    form = form_to(shared.browsers["owner"].get(page).content, path, page).values
    client = Client()
    client.post(path, form | {"metadata": '"' * METADATA_MAX})
    assert SESSION_KEY in client.session


def test_a_kept_form_acts_on_no_other_address(shared: SharedOrganization) -> None:
    page, owner = reverse("account_email"), shared.org.owner
    for name in ("b", "c"):
        EmailAddress.objects.create(user=owner, email=f"{name}@acme.example", verified=True)
    shown = shared.browsers["owner"].get(page).content
    forms = [form.values for form in forms_of(shown, page)]
    [row] = [form for form in forms if form.get("email") == ["c@acme.example"]]
    client = Client()
    client.post(page, row | {"action_remove": ""})
    EmailAddress.objects.filter(email="c@acme.example").delete()
    client.force_login(owner)
    content = client.get(page).content.decode()
    assert NOT_SAVED in content
    assert "c@acme.example" not in content
    assert content.count('value="b@acme.example"') == 1


def test_passwords_are_not_kept(shared: SharedOrganization) -> None:
    page = reverse("account_change_password")
    form = form_to(shared.browsers["owner"].get(page).content, page).values
    client = Client()
    client.post(page, form | {"oldpassword": "s3cret", "password1": "s3cret"})
    [[_, sealed]] = client.session[SESSION_KEY]
    assert "s3cret" not in encryption.decrypt(sealed, purpose=PURPOSE)


@pytest.fixture
def strict(shared: SharedOrganization) -> Client:
    """The owner's browser, with the CSRF protection that other tests go without."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(shared.org.owner)
    return client


def with_token(client: Client, shared: SharedOrganization, invite) -> dict[str, str]:
    """Open the page in this browser; return the form with its CSRF token."""
    page = client.get(address(shared.org.organization, "team"))
    path = address(shared.org.organization, "team_invite")
    form = form_to(page.content, path)
    return invite | {FIELD: form.values[FIELD], CSRF: form.form.fields[CSRF]}


def sign_in_again(client: Client, user: User) -> None:
    """Sign in in another tab, as a browser does: the CSRF token changes."""
    client.logout()
    page = client.get(LOGIN)
    form = {"login": user.email, "password": PASSWORD, CSRF: str(page.context["csrf_token"])}
    assert client.post(LOGIN, form).status_code == 302
    assert get_user(client) == user


def test_a_csrf_miss_leads_back_to_the_form(
    shared: SharedOrganization, strict: Client, invite
) -> None:
    form, org = with_token(strict, shared, invite), shared.org.organization
    sign_in_again(strict, shared.org.owner)
    reply = strict.post(address(org, "team_invite"), form)
    assert (reply.status_code, reply.headers["location"]) == (302, address(org, "team"))
    shown = strict.get(reply.headers["location"]).content
    assert NOT_SAVED in shown.decode()
    values = form_to(shown, address(org, "team_invite")).values
    assert values["email"] == ["new@example.com"]
    assert not Invitation.objects.filter(email="new@example.com").exists()


def test_a_csrf_miss_of_nobody_leads_to_the_sign_in(
    shared: SharedOrganization, strict: Client, invite
) -> None:
    form, org = with_token(strict, shared, invite), shared.org.organization
    strict.cookies.clear()
    reply = strict.post(address(org, "team_invite"), form, headers={"cookie": "theme=dark"})
    assert next_of(reply) == address(org, "team")


def test_a_csrf_miss_of_somebody_else_or_from_elsewhere_is_told(
    shared: SharedOrganization, strict: Client, invite
) -> None:
    form, org = with_token(strict, shared, invite), shared.org.organization
    path = address(org, "team_invite")
    abroad = strict.post(path, form, headers={"origin": "https://evil.example"})
    sign_in_again(strict, shared.outsider.owner)
    other = strict.post(path, form)
    tokenless = strict.post(path, {"email": "new@example.com"})
    for reply in (abroad, other, tokenless):
        page = reply.content.decode()
        assert reply.status_code == 403
        assert "This was not saved" in page
        assert f'href="{address(org, "team")}"' in page
    assert "another account" in other.content.decode()
    assert not strict.session.get(SESSION_KEY)
    api = strict.post("/api/v1/organizations", {}, content_type="application/json")
    assert api.status_code == 403
    assert "error" in api.json()


def test_a_second_sign_in_passes_on(shared: SharedOrganization) -> None:
    client = Client(enforce_csrf_checks=True)
    page, org = client.get(f"{LOGIN}?next=/organizations/new"), shared.org
    form = form_to(page.content, LOGIN, LOGIN)
    sent = form.values | {CSRF: form.form.fields[CSRF], "login": org.owner.email}
    sent |= {"password": PASSWORD}
    for where in ("/organizations/new", "https://evil.example/"):
        sign_in_again(client, org.owner)
        reply = client.post(LOGIN, sent | {"next": where})
        assert reply.status_code == 302
        assert reply.headers["location"] == ("/" if "evil" in where else where)
        client.logout()
    blind = client.post(LOGIN, sent)
    assert (blind.status_code, "no cookies" in blind.content.decode()) == (403, True)
    client.get(LOGIN)
    late = client.post(LOGIN, sent)
    assert late.status_code == 302
    shown = form_to(client.get(late.headers["location"]).content, LOGIN, LOGIN).values
    assert shown["login"] == [org.owner.email]


def test_a_step_up_that_is_given_up_keeps_the_form(shared: SharedOrganization) -> None:
    client = Client()
    client.force_login(shared.org.owner)
    let_time_pass(client, 3600)
    pages = {
        "billing_profile": ("billing_profile", {"city": WORD}),
        "key_edit": ("key", {"allowed_models": WORD}),
    }
    for name, (page, typed) in pages.items():
        path, url = address_of(name, shared.ids), address_of(page, shared.ids)
        form = form_to(client.get(url).content, path, url).values
        reply = client.post(path, form | typed)
        where = urlsplit(reply.headers["location"])
        assert where.path == "/accounts/reauthenticate/"
        assert parse_qs(where.query)["next"] == [url]
        shown = client.get(url).content
        assert NOT_SAVED in shown.decode()
        held = form_to(shown, path, url).values
        assert {each: held[each] for each in typed} == {each: [typed[each]] for each in typed}
    member = shared.org.join("developer")
    member.set_password(PASSWORD)
    member.save()
    client.force_login(member)
    erase, page = reverse("console:personal_data_erase"), reverse("console:personal_data")
    form = form_to(client.get(page).content, erase, page).values
    reply = client.post(erase, form | {"confirmation": WORD})
    assert parse_qs(urlsplit(reply.headers["location"]).query)["next"] == [page]
    assert WORD in client.get(page).content.decode()
