"""Sessions of a person: listed, ended at once, and told of by mail and in the audit."""

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from control.accounts import sessions
from control.accounts.login_attempts import wait_text
from control.accounts.models import User
from control.accounts.trusted_devices import device_name
from control.audit.models import AuditEvent
from control.organizations.services import create_organization
from control.tasks import purge_sessions
from tests.fixtures.mails import delivered, html_of, link_in
from tests.fixtures.organizations import OPERATOR
from tests.fixtures.signing_in import CHROME, HOME, PASSWORD, browser, is_in, sign_in, signed_in

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
SESSIONS = "/accounts/sessions/"
AWAY = "203.0.113.5"


def end(client: Client, session: UserSession) -> int:
    return client.post(f"{SESSIONS}{session.pk}/end/").status_code


def test_they_are_listed_with_device_and_address(ada: User) -> None:
    signed_in(ada.email, AWAY)
    page = signed_in(ada.email).get(SESSIONS).content.decode()
    assert page.count("Chrome on Linux") >= 2
    assert AWAY in page
    assert page.count("This session") == 1


def test_an_ended_one_is_nobodys_with_its_next_request(ada: User) -> None:
    there, here = signed_in(ada.email, AWAY), signed_in(ada.email)
    assert end(here, UserSession.objects.get(ip=AWAY)) == 302
    assert there.get("/api/v1/organizations").status_code == 401
    assert here.get("/api/v1/organizations").status_code == 200


def test_all_others_end_with_one_button(ada: User) -> None:
    others, here = [signed_in(ada.email, AWAY) for _ in range(3)], signed_in(ada.email)
    here.post(SESSIONS)
    assert [each.get("/api/v1/organizations").status_code for each in others] == [401] * 3
    assert here.get("/api/v1/organizations").status_code == 200


def test_of_one_person_only_the_newest_go_on(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    clients = [signed_in(ada.email) for _ in range(5)]
    statuses = [each.get("/api/v1/organizations").status_code for each in clients]
    assert statuses == [401, 401, 200, 200, 200]
    assert UserSession.objects.count() == Session.objects.count() == 3


def test_what_is_over_is_deleted(ada: User) -> None:
    old, new = signed_in(ada.email, AWAY), signed_in(ada.email)
    browser().get("/accounts/2fa/webauthn/login/")  # a stranger's, which is no person's
    over = timezone.now() - timedelta(seconds=1)
    Session.objects.exclude(session_key=new.session.session_key).update(expire_date=over)
    purge_sessions()
    assert [each.session_key for each in Session.objects.all()] == [new.session.session_key]
    assert [each.ip for each in UserSession.objects.all()] == [HOME]
    assert not is_in(old)


def test_another_persons_cannot_be_ended(ada: User, bob: User) -> None:
    hers = signed_in(ada.email)
    assert end(signed_in(bob.email), UserSession.objects.get(user=ada)) == 404
    assert is_in(hers)


def test_another_password_ends_all_others(ada: User) -> None:
    there, here = signed_in(ada.email, AWAY), signed_in(ada.email)
    new = "a new horse battery staple"
    form = {"oldpassword": PASSWORD, "password1": new, "password2": new}
    assert here.post("/accounts/password/change/", form).status_code == 302
    assert there.get("/api/v1/organizations").status_code == 401
    assert here.get("/api/v1/organizations").status_code == 200
    assert delivered()[-1].subject == "Your password was changed"
    assert UserSession.objects.count() == Session.objects.count() == 1


def test_a_reset_password_ends_them_all(ada: User) -> None:
    client, lost = signed_in(ada.email), browser(AWAY)
    lost.post("/accounts/password/reset/", {"email": ada.email})
    link = urlsplit(link_in(delivered()[-1], "/accounts/password/reset/key/")).path
    form = lost.get(link, follow=True).request["PATH_INFO"]
    new = "a new horse battery staple"
    assert lost.post(form, {"password1": new, "password2": new}).status_code == 302
    assert client.get("/api/v1/organizations").status_code == 401
    assert not UserSession.objects.exists()
    assert sign_in(browser(), ada.email, new).status_code == 302


def test_the_page_asks_the_database_as_often_for_many_as_for_one(
    ada: User, django_assert_num_queries
) -> None:
    client = signed_in(ada.email)
    with CaptureQueriesContext(connection) as one:
        client.get(SESSIONS)
    count = len(one)
    for _ in range(10):
        signed_in(ada.email)
    with django_assert_num_queries(count):
        client.get(SESSIONS)


def test_a_new_device_is_told_of_and_a_known_one_is_not(ada: User) -> None:
    client = signed_in(ada.email, AWAY)
    [mail] = delivered()
    assert (mail.to, mail.subject) == ([ada.email], "New sign-in to Penstock")
    for text in (str(mail.body), html_of(mail)):
        assert "Chrome on Linux" in text
        assert AWAY in text
        assert "/accounts/sessions/" in text
    client.post("/accounts/logout/")
    assert sign_in(client, ada.email).status_code == 302
    assert len(delivered()) == 1


def test_a_device_of_one_account_is_new_to_another(ada: User, bob: User) -> None:
    client = signed_in(ada.email)
    client.post("/accounts/logout/")
    sign_in(client, bob.email)
    assert [mail.to for mail in delivered()] == [[ada.email], [bob.email]]
    client.post("/accounts/logout/")
    sign_in(client, ada.email)
    assert len(delivered()) == 2  # one browser remembers several people


def test_signing_up_is_no_news(client: Client, db: None) -> None:
    client.post("/accounts/signup/", {"email": "eve@acme.example", "password1": PASSWORD})
    link = urlsplit(link_in(delivered()[0], "/accounts/confirm-email/")).path
    client.post(link)
    assert is_in(client)
    assert [mail.subject for mail in delivered()] == ["Confirm your email address"]
    client.post("/accounts/logout/")
    assert sign_in(client, "eve@acme.example").status_code == 302
    assert len(delivered()) == 1  # the device is known from then on


def test_the_audit_knows_who_came_and_who_did_not(ada: User) -> None:
    organization = create_organization(actor=OPERATOR, name="Acme", owner=ada)
    sign_in(browser(), ada.email, "wrong")
    client = signed_in(ada.email)
    client.post("/accounts/logout/")
    sign_in(browser(), "nobody@acme.example", "wrong")
    found = AuditEvent.objects.filter(organization_id=organization.id, target_kind="user")
    deeds = list(found.order_by("id").values_list("action", "actor_kind", "details"))
    assert deeds == [
        ("user.login_failed", "system", {"way": "password"}),
        ("user.logged_in", "user", {"ways": ["password"]}),
        ("user.logged_out", "user", {}),
    ]


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (CHROME, "Chrome on Linux"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Version/18.0 Safari/604.1", "Safari on iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) Gecko/20100101 Firefox/140.0", "Firefox on Windows"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537 Edg/140.0", "Edge on Windows"),
        ("python-httpx/0.28", "python-httpx"),
        ("", "An unknown device"),
        ("\x1b[31m", "An unknown device"),
    ],
)
def test_a_device_is_called_what_people_call_it(agent: str, name: str) -> None:
    assert device_name(agent) == name


def test_a_wait_is_never_told_shorter_than_it_is() -> None:
    words = [wait_text(seconds) for seconds in (1, 89, 90, 121, 3600)]
    assert words == ["1 second", "89 seconds", "2 minutes", "3 minutes", "60 minutes"]
