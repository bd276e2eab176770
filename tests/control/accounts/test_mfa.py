"""Second factors: who may add and take them away, and what is kept of them."""

import re
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.core.cache import cache
from django.test import Client

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.organizations.services import create_organization
from tests.fixtures.mails import delivered, link_in
from tests.fixtures.organizations import OPERATOR
from tests.fixtures.second_factor import PERIOD_SECONDS, code_of
from tests.fixtures.signing_in import NOW, PASSWORD, browser, is_in, sign_in, signed_in

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db,
    pytest.mark.usefixtures("still_codes"),
]
ACTIVATE = "/accounts/2fa/totp/activate/"
DEACTIVATE = "/accounts/2fa/totp/deactivate/"
CODES = "/accounts/2fa/recovery-codes/"
AUTHENTICATE = "/accounts/2fa/authenticate/"
SECRET = "JBSWY3DPEHPK3PXP"


def set_up_app(client: Client) -> str:
    """Set up an authenticator app; return its secret."""
    asked = client.get(ACTIVATE, follow=True)
    assert asked.request["PATH_INFO"] == "/accounts/reauthenticate/"
    form = client.post(asked.request["PATH_INFO"] + f"?next={ACTIVATE}", {"password": PASSWORD})
    page = client.get(form.headers["location"]).content.decode()
    secret = re.search(r'id="authenticator_secret" value="(\w+)"', page)
    assert secret, page
    assert client.post(ACTIVATE, {"code": code_of(secret[1])}).status_code == 302
    return secret[1]


@pytest.fixture
def own(ada: User) -> Client:
    """Her browser, in which she set up an app."""
    client = signed_in(ada.email)
    set_up_app(client)
    return client


def test_a_password_alone_is_not_enough_then(ada: User, own: Client) -> None:
    client = browser()
    reply = sign_in(client, ada.email)
    assert reply.headers["location"].startswith(AUTHENTICATE)
    assert not is_in(client)


def test_the_apps_secret_is_not_readable_in_the_database(ada: User, own: Client) -> None:
    kept = Authenticator.objects.get(type=Authenticator.Type.TOTP).data["secret"]
    assert kept.startswith("v1:")


def test_secrets_from_before_they_were_encrypted_still_open(ada: User) -> None:
    Authenticator.objects.create(user=ada, type=Authenticator.Type.TOTP, data={"secret": SECRET})
    client = browser()
    sign_in(client, ada.email)
    client.post(AUTHENTICATE, {"code": code_of(SECRET)})
    assert is_in(client)


def test_a_code_opens_nothing_when_its_use_is_forgotten(
    ada: User, still_codes: SimpleNamespace
) -> None:
    """Its use is remembered for one period, so it must be worth nothing after that."""
    Authenticator.objects.create(user=ada, type=Authenticator.Type.TOTP, data={"secret": SECRET})
    code = code_of(SECRET)
    for seconds, opens in ((0, True), (PERIOD_SECONDS, False)):
        cache.clear()
        still_codes.at += seconds
        client = browser()
        sign_in(client, ada.email)
        client.post(AUTHENTICATE, {"code": code})
        assert is_in(client) == opens


@pytest.mark.parametrize("path", [DEACTIVATE, f"{CODES}generate/", "/accounts/2fa/webauthn/add/"])
def test_a_session_with_a_password_alone_changes_no_factor(
    ada: User, own: Client, path: str
) -> None:
    thief = Client(REMOTE_ADDR="203.0.113.5")
    thief.force_login(ada)  # a stolen session, whose thief knows the password
    reply = thief.post(f"/accounts/reauthenticate/?next={path}", {"password": PASSWORD})
    assert urlsplit(reply.headers["location"]).path == "/accounts/2fa/reauthenticate/"
    reply = thief.post(path)
    assert urlsplit(reply.headers["location"]).path == "/accounts/2fa/reauthenticate/"
    assert Authenticator.objects.filter(user=ada, type=Authenticator.Type.TOTP).exists()


@pytest.mark.parametrize("action", ["add", "primary", "remove"])
def test_a_stolen_session_changes_no_address(ada: User, settings, action: str) -> None:
    EmailAddress.objects.create(user=ada, email="other@acme.example", verified=True)
    client = signed_in(ada.email)
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 0  # it is long since the password was shown
    email = "thief@evil.example" if action == "add" else "other@acme.example"
    reply = client.post("/accounts/email/", {"email": email, f"action_{action}": ""})
    assert reply.headers["location"].startswith("/accounts/reauthenticate/")
    kept = EmailAddress.objects.values_list("email", "primary")
    assert set(kept) == {(ada.email, True), ("other@acme.example", False)}


def test_a_new_address_gets_a_link_that_verifies_it(ada: User) -> None:
    client, email = signed_in(ada.email), "second@acme.example"
    where = client.post("/accounts/email/", {"email": email, "action_add": ""}).headers["location"]
    back = {"password": PASSWORD, "next": parse_qs(urlsplit(where).query)["next"][0]}
    assert client.post("/accounts/reauthenticate/", back).headers["location"] == "/accounts/email/"
    [mail] = [each for each in delivered() if each.to == [email]]
    link = urlsplit(link_in(mail, "/confirm-email/")).path
    client.get(link)
    client.post(link)
    assert EmailAddress.objects.get(email=email).verified


def test_who_shows_the_factor_may_take_it_away_and_is_told(
    ada: User, django_capture_on_commit_callbacks
) -> None:
    client = signed_in(ada.email)
    with django_capture_on_commit_callbacks(execute=True):
        set_up_app(client)
    fresh = Client()
    fresh.force_login(ada)
    recovery = _codes(client)[0]
    reply = fresh.post(f"/accounts/2fa/reauthenticate/?next={DEACTIVATE}", {"code": recovery})
    assert reply.headers["location"] == DEACTIVATE
    assert fresh.post(DEACTIVATE).status_code == 302
    assert not Authenticator.objects.filter(user=ada).exists()
    subjects = {mail.subject for mail in delivered()}
    assert {"An authenticator app was added", "The authenticator app was removed"} <= subjects
    deeds = AuditEvent.objects.filter(target_id=ada.id).values_list("action", "details__kind")
    assert ("user.mfa_added", "totp") in deeds
    assert ("user.mfa_removed", "totp") in deeds


def _codes_of(user: User) -> list[str]:
    """Return the recovery codes that were not used."""
    kept = Authenticator.objects.get(user=user, type=Authenticator.Type.RECOVERY_CODES)
    codes: list[str] = kept.wrap().get_unused_codes()
    return codes


def _codes(client: Client) -> list[str]:
    page = client.get(f"{CODES}download/").content.decode()
    return re.findall(r"^\d{8}$", page, re.M)


def test_a_recovery_code_opens_once(ada: User, own: Client) -> None:
    code = _codes(own)[0]
    for is_first in (True, False):
        client = browser()
        sign_in(client, ada.email)
        client.post(AUTHENTICATE, {"code": code})
        assert is_in(client) == is_first


def test_wrong_codes_are_counted_and_keep_nobody_out(
    ada: User, own: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No window of tries ends meanwhile.
    monkeypatch.setattr("control.accounts.mfa.time", SimpleNamespace(time=lambda: NOW))
    thief = browser("203.0.113.5")  # who has her password
    sign_in(thief, ada.email)
    pages = [thief.post(AUTHENTICATE, {"code": f"00000{n}"}).content.decode() for n in range(7)]
    assert "Too many wrong codes. Try again in" in pages[-1]
    assert not is_in(thief)
    assert AuditEvent.objects.filter(action="user.login_failed", details__way="totp").count() == 5
    for client in (own, browser()):
        client.post("/accounts/logout/")
        sign_in(client, ada.email)
        client.post(AUTHENTICATE, {"code": _codes_of(ada).pop()})
        assert is_in(client)


@pytest.mark.parametrize(
    "path",
    ["/accounts/2fa/", "/accounts/sessions/", "/accounts/password/change/", "/accounts/email/"],
)
def test_account_pages_stand_in_the_consoles_frame(ada: User, path: str) -> None:
    client = signed_in(ada.email)
    assert 'aria-label="Your account"' not in client.get(path).content.decode()
    create_organization(actor=OPERATOR, name="Acme", owner=ada)
    page = client.get(path).content.decode()
    assert 'aria-label="Your account"' in page
    assert 'aria-label="Console"' in page
    assert 'aria-current="page">Overview' not in page


def test_passkeys_are_not_offered_where_browsers_keep_none(ada: User) -> None:
    page = signed_in(ada.email).get("/accounts/2fa/").content.decode()  # the console is 127.0.0.1
    assert "Browsers keep passkeys for host names" in page
    assert "/accounts/2fa/webauthn/login/" not in browser().get("/accounts/login/").content.decode()


JUNK = [
    "-1",
    "[]",
    "{}",
    "not json",
    '{"id": "AA", "rawId": "AA", "type": "public-key", "response": {}}',
    '{"id": "AA", "rawId": "AA", "type": "public-key", "response": {"userHandle": "AA",'
    ' "clientDataJSON": "AA", "authenticatorData": "AA", "signature": "AA"}}',
    '{"response": 5}',
    '{"response": {"userHandle": 5}}',
]


@pytest.mark.parametrize("credential", JUNK)
def test_what_is_no_passkey_is_refused_in_words(ada: User, credential: str) -> None:
    client = browser()
    begun = client.get("/accounts/2fa/webauthn/login/", headers={"accept": "application/json"})
    assert begun.json()["request_options"]["publicKey"]["challenge"]
    reply = client.post("/accounts/2fa/webauthn/login/", {"credential": credential})
    assert reply.headers["location"] == "/accounts/login/"
    assert not is_in(client)


@pytest.mark.parametrize("credential", JUNK)
def test_nor_is_it_added(ada: User, credential: str) -> None:
    client = signed_in(ada.email)
    add = "/accounts/2fa/webauthn/add/"
    client.post(f"/accounts/reauthenticate/?next={add}", {"password": PASSWORD})
    assert client.get(add).status_code == 200
    assert client.post(add, {"name": "Laptop", "credential": credential}).status_code == 200
    assert not Authenticator.objects.exists()
