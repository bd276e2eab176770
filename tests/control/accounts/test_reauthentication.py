"""Operators are in for half a day; keys, money and prices ask for a recent proof of identity."""

import json
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.urls import reverse

from control.accounts.models import User
from control.api_keys.models import ApiKey
from control.pricing.models import PriceBook
from tests.fixtures.organizations import PASSWORD, SeededOrganization
from tests.fixtures.second_factor import let_time_pass
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
HOUR = 3600
REAUTHENTICATE = "/accounts/reauthenticate/"


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("op@penstock.example", PASSWORD))
    return client


@pytest.fixture
def stale(org: SeededOrganization) -> Client:
    """The owner's browser, an hour after the sign-in."""
    client = org.browser()
    let_time_pass(client, HOUR)
    return client


def ask_for_key(client: Client, org: SeededOrganization) -> str:
    """Send the form of a new key; return where it leads."""
    form = {"name": "Backend", "project": org.project.id, "scopes": "inference"}
    where = address(org.organization, "key_new", project=org.project.id)
    return str(client.post(where, form).headers["location"])


def prove(client: Client, where: str, password: str = PASSWORD):
    """Show the password on the page that asks for it."""
    form = {"password": password, "next": parse_qs(urlsplit(where).query).get("next", [""])[0]}
    return client.post(where, form)


def test_an_operators_session_ends_half_a_day_after_the_sign_in(operator: Client) -> None:
    let_time_pass(operator, 11 * HOUR)
    assert operator.get("/admin/").status_code == 200
    let_time_pass(operator, 2 * HOUR)
    assert operator.get("/admin/").headers["location"].startswith("/admin/login/")
    assert "_auth_user_id" not in operator.session


def test_a_members_session_lasts_on_and_ends_once_they_are_an_operator(
    org: SeededOrganization,
) -> None:
    client = org.browser()
    let_time_pass(client, 13 * 24 * HOUR)
    assert client.get(address(org.organization, "keys")).status_code == 200
    User.objects.filter(pk=org.owner.pk).update(operator_role="viewer")
    assert client.get(address(org.organization, "keys")).status_code == 302
    assert "_auth_user_id" not in client.session


def test_a_form_that_came_late_is_carried_out_after_a_proof(
    org: SeededOrganization, stale: Client
) -> None:
    where = ask_for_key(stale, org)
    assert where.startswith(REAUTHENTICATE)
    assert "name=Backend" not in json.dumps(dict(stale.session))
    assert prove(stale, where, "wrong").status_code == 200
    assert not ApiKey.objects.exists()
    reply = prove(stale, where)
    key = ApiKey.objects.get()
    assert (
        urlsplit(reply.headers["location"]).path
        == urlsplit(address(org.organization, "key_secret", key.id)).path
    )
    assert "pen_live_" in stale.get(reply.headers["location"]).content.decode()
    assert "key" in ask_for_key(stale, org)  # for some minutes nothing is asked again
    assert ApiKey.objects.count() == 2


def test_a_form_that_was_given_up_is_sent_by_no_other_proof(
    org: SeededOrganization, stale: Client
) -> None:
    ask_for_key(stale, org)
    reply = prove(stale, f"{REAUTHENTICATE}?next=/accounts/email/")
    assert reply.headers["location"] == "/accounts/email/"
    assert not ApiKey.objects.exists()


def test_a_form_waits_for_some_minutes_only(
    org: SeededOrganization, stale: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ask_for_key(stale, org)
    session = stale.session
    session["account_reauthentication_state"]["state"]["at"] -= 6 * 60
    session.save()
    reply = prove(stale, where)
    assert reply.headers["location"].startswith(address(org.organization, "keys"))
    assert not ApiKey.objects.exists()


def test_who_just_verified_their_address_is_asked_nothing(org: SeededOrganization) -> None:
    client = org.browser()
    session = client.session
    session["account_authentication_methods"] = []  # a link in a mail is no proof to allauth
    session.save()
    assert "key" in urlsplit(ask_for_key(client, org)).path


@pytest.mark.parametrize("has_password", [True, False])
def test_who_came_by_sso_proves_it_there_without_another_method(
    org: SeededOrganization, has_password: bool
) -> None:
    if not has_password:
        org.owner.set_unusable_password()
        org.owner.save()
    client = org.browser()
    session = client.session
    session["account_authentication_methods"] = [{"method": "sso", "at": time.time()}]
    session.save()
    let_time_pass(client, HOUR)
    where = urlsplit(ask_for_key(client, org))
    assert where.path == (REAUTHENTICATE if has_password else reverse("sso_begin"))
    back = address(org.organization, "keys", project=org.project.id)
    assert parse_qs(where.query)["next"] == [back]


ADMIN = {
    "pricing_pricebook_add": True,
    "credit_creditgrant_add": True,
    "organizations_organization_changelist": True,
    "api_keys_apikey_changelist": True,
    "catalog_model_add": False,
}


@pytest.mark.parametrize(("page", "is_asked"), ADMIN.items())
def test_an_operators_form_of_money_prices_keys_and_people_asks(
    operator: Client, page: str, is_asked: bool
) -> None:
    let_time_pass(operator, HOUR)
    where = reverse(f"admin:{page}")
    assert operator.get(where).status_code == 200
    reply = operator.post(where, {})
    assert (reply.status_code == 302) == is_asked
    if is_asked:
        assert reply.headers["location"].startswith(REAUTHENTICATE)


def test_an_operators_form_goes_on_after_the_proof(operator: Client) -> None:
    let_time_pass(operator, HOUR)
    inline = {"prices-TOTAL_FORMS": "0", "prices-INITIAL_FORMS": "0"}
    form = {"name": "Autumn", **inline}
    where = operator.post(reverse("admin:pricing_pricebook_add"), form)
    reply = prove(operator, where.headers["location"])
    assert reply.status_code == 302, reply.content.decode()
    assert reply.headers["location"].startswith("/admin/pricing/pricebook/")
    assert PriceBook.objects.get().name == "Autumn"
