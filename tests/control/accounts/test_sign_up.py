"""Sign-up, login and password reset, by e-mail address."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core.cache import cache
from django.test import Client

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.errors import Conflict
from control.feed.models import PublishedChange
from control.organizations.models import Membership, Organization
from control.organizations.selectors import notification_recipients
from control.organizations.signals import organization_created
from control.outbox.models import OutboxMessage
from control.permissions import Role
from tests.fixtures.mails import delivered, html_of, link_in
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.signing_in import without_tokens

PASSWORD = "correct horse battery staple"
FORM = {"email": "Ada@Example.com", "password1": PASSWORD}

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def forget_how_often_was_asked() -> None:
    cache.clear()


def sign_up(client: Client) -> Any:
    return client.post("/accounts/signup/", FORM)


def test_signing_up_makes_an_organization_with_its_owner(client: Client) -> None:
    assert sign_up(client).status_code == 302
    seat = Membership.objects.get()
    assert (seat.user.email, seat.role) == ("ada@example.com", Role.OWNER)
    assert seat.organization.name == "ada's organization"
    assert seat.organization.projects.get().name == "Default"
    assert "_auth_user_id" not in client.session  # until the address is verified


def test_a_verified_address_lets_in_where_one_signed_up(client: Client) -> None:
    sign_up(client)
    link = urlsplit(link_in(delivered()[0], "/accounts/confirm-email/")).path
    client.post(link)
    assert "_auth_user_id" in client.session


def test_without_a_verified_address_the_password_lets_nobody_in(client: Client) -> None:
    sign_up(client)
    other = Client()
    reply = other.post("/accounts/login/", {"login": "ada@example.com", "password": PASSWORD})
    assert reply.headers["location"] == "/accounts/confirm-email/"
    assert "_auth_user_id" not in other.session


def test_a_sign_up_tells_nobody_who_has_an_account(client: Client) -> None:
    User.objects.create_user("ada@example.com", PASSWORD)
    forms = ({**FORM, "email": email} for email in ("ada@example.com", "eve@example.com"))
    replies = [Client().post("/accounts/signup/", form, follow=True) for form in forms]
    told = {
        (
            reply.status_code,
            tuple(reply.redirect_chain),
            frozenset(reply.client.cookies),
            without_tokens(reply.content.decode()),
        )
        for reply in replies
    }
    assert len(told) == 1
    assert {(mail.to[0], mail.subject) for mail in delivered()} == {
        ("ada@example.com", "You already have an account"),
        ("eve@example.com", "Confirm your email address"),
    }


def test_who_signs_up_twice_leaves_nothing_more(client: Client) -> None:
    sign_up(client)
    before = [
        each.objects.count()
        for each in (User, Organization, Membership, AuditEvent, PublishedChange)
    ]
    sign_up(Client())
    after = [
        each.objects.count()
        for each in (User, Organization, Membership, AuditEvent, PublishedChange)
    ]
    assert after == before


def test_a_reset_tells_nobody_who_has_an_account(client: Client) -> None:
    User.objects.create_user("ada@example.com", PASSWORD)
    replies = [
        Client().post("/accounts/password/reset/", {"email": email}, follow=True)
        for email in ("ada@example.com", "eve@example.com")
    ]
    assert len({without_tokens(reply.content.decode()) for reply in replies}) == 1


def test_sign_ups_are_counted_by_network(settings: Any) -> None:
    settings.ACCOUNT_RATE_LIMITS = {**settings.ACCOUNT_RATE_LIMITS, "signup": "1/h/ip"}
    told = {
        "2001:db8:1:2::1": 302,
        "2001:db8:1:2:ffff::1": 429,  # of the same /64
        "2001:db8:1:3::1": 302,
        "::ffff:203.0.113.7": 302,
        "203.0.113.7": 429,
        "::ffff:203.0.113.8": 302,
    }
    for number, (address, status) in enumerate(told.items()):
        form = {"email": f"eve{number}@example.com", "password1": PASSWORD}
        reply = Client(REMOTE_ADDR=address).post("/accounts/signup/", form)
        assert (address, reply.status_code) == (address, status)


@pytest.mark.parametrize("path", ["/accounts/signup/", "/accounts/login/"])
def test_a_password_is_hashed_once_whoever_is_asked_for(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    User.objects.create_user("ada@example.com", PASSWORD)
    hashed: list[str] = []
    encode = MD5PasswordHasher.encode

    def counted(self: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return str(encode(self, password, salt))

    monkeypatch.setattr(MD5PasswordHasher, "encode", counted)
    for email in ("ada@example.com", "eve@example.com"):
        hashed.clear()
        form = {"email": email, "login": email, "password1": PASSWORD, "password": f"{PASSWORD}."}
        Client().post(path, form)
        assert len(hashed) == 1, email


def test_a_sign_up_that_fails_leaves_nothing(client: Client) -> None:
    def refuse(**_: Any) -> None:
        raise Conflict("no room")

    organization_created.connect(refuse)
    try:
        with pytest.raises(Conflict):
            sign_up(client)
    finally:
        organization_created.disconnect(refuse)
    assert not User.objects.exists()
    assert not Organization.objects.exists()


def test_a_weak_password_is_refused(client: Client) -> None:
    reply = client.post("/accounts/signup/", {"email": "ada@example.com", "password1": "password"})
    assert reply.status_code == 200
    assert not User.objects.exists()


def test_login_ignores_the_case_of_the_address(client: Client) -> None:
    User.objects.create_user("ada@example.com", PASSWORD)
    form = {"login": "ADA@example.com", "password": PASSWORD}
    assert client.post("/accounts/login/", form).status_code == 302
    assert "_auth_user_id" in client.session


def test_logging_out_ends_the_session_on_the_server(client: Client) -> None:
    client.force_login(User.objects.create_user("ada@example.com", PASSWORD))
    stolen = client.cookies["penstock_session"].value
    client.post("/accounts/logout/")
    client.cookies["penstock_session"] = stolen
    assert client.get("/api/v1/organizations").status_code == 401


def test_a_password_is_reset_by_mail(client: Client) -> None:
    User.objects.create_user("ada@example.com", PASSWORD)
    client.post("/accounts/password/reset/", {"email": "ada@example.com"})
    link = urlsplit(link_in(delivered()[0], "/password/reset/key/")).path
    form = client.get(link, follow=True)
    new = "a new horse battery staple"
    client.post(form.redirect_chain[-1][0], {"password1": new, "password2": new})
    assert User.objects.get().check_password(new)


def test_a_strangers_address_is_not_given_away(client: Client) -> None:
    User.objects.create_user("ada@example.com", PASSWORD)
    known = client.post("/accounts/password/reset/", {"email": "ada@example.com"})
    unknown = client.post("/accounts/password/reset/", {"email": "eve@example.com"})
    assert (known.status_code, known.headers["location"]) == (
        unknown.status_code,
        unknown.headers["location"],
    )


def test_session_cookies_are_out_of_reach_of_scripts(client: Client) -> None:
    User.objects.create_user("ada@example.com", PASSWORD)
    client.post("/accounts/login/", {"login": "ada@example.com", "password": PASSWORD})
    cookie = client.cookies["penstock_session"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert not cookie["secure"]  # the console of the tests is plain http


def test_a_second_factor_is_on_offer(client: Client) -> None:
    client.force_login(User.objects.create_user("ada@example.com", PASSWORD))
    assert client.get("/accounts/2fa/").status_code == 200


MAILS = {
    "/accounts/signup/": (FORM, "Confirm your email address", "/accounts/confirm-email/"),
    "/accounts/password/reset/": (
        {"email": "ada@example.com"},
        "There is no account for this address",
        "/accounts/signup/",
    ),
}


@pytest.mark.parametrize("path", MAILS)
def test_mails_lead_to_the_configured_host_whatever_the_request_names(
    client: Client, path: str
) -> None:
    form, subject, part = MAILS[path]
    client.post(path, form, headers={"host": "localhost"})
    [message] = delivered()
    assert (message.to, message.subject) == (["ada@example.com"], subject)
    assert link_in(message, part).startswith("http://127.0.0.1:1/")
    assert "localhost" not in html_of(message) + str(message.body)


def test_a_sign_up_whose_mail_cannot_be_decided_leaves_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("control.accounts.adapter.send_mail", refuse)
    with pytest.raises(ZeroDivisionError):
        sign_up(client)
    assert not User.objects.exists()
    assert not OutboxMessage.objects.exists()


def test_people_to_tell_are_those_with_money_and_a_verified_address(
    org: SeededOrganization,
) -> None:
    for role in Role.values:
        user = org.join(role)
        EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    EmailAddress.objects.create(user=org.owner, email=org.owner.email, verified=False)
    told = [address.split(".")[0] for address in notification_recipients(org.id)]
    assert told == ["admin", "billing", "owner"]
