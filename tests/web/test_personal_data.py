"""A person's own data in the console: a copy, and the end of the account."""

import io
import time
import zipfile
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.data_requests.models import DataSubjectRequest, RequestState
from control.organizations.models import Membership
from control.tasks import purge_exports, run_data_requests
from tests.fixtures.organizations import SeededOrganization

pytestmark = pytest.mark.integration
PAGE = "/accounts/personal-data"


@pytest.fixture
def grace(org: SeededOrganization) -> User:
    user = User.objects.create_user("grace@acme.example", "a-long-enough-phrase")
    Membership.objects.create(organization=org.organization, user=user, role="developer")
    return user


@pytest.fixture
def browser(grace: User) -> Client:
    client = Client()
    client.force_login(grace)
    return client


def proved(client: Client, at: float) -> Client:
    """Return a browser whose person typed the password once more, at this time."""
    session = client.session
    proof = {"method": "password", "at": at, "reauthenticated": True}
    session["account_authentication_methods"] = [proof]
    session.save()
    return client


def test_a_copy_is_asked_for_told_of_and_downloaded(browser: Client) -> None:
    page = browser.post(f"{PAGE}/export", follow=True).content.decode()
    assert "Your data export is being prepared" in page
    assert 'http-equiv="refresh"' in page
    assert "Download" not in page
    run_data_requests()
    data_request = DataSubjectRequest.objects.get()
    page = browser.get(PAGE).content.decode()
    assert f'href="{PAGE}/{data_request.id}"' in page
    assert 'http-equiv="refresh"' not in page
    reply = browser.get(f"{PAGE}/{data_request.id}")
    assert "no-store" in reply.headers["cache-control"]
    names = zipfile.ZipFile(io.BytesIO(reply.content)).namelist()
    assert {"README.txt", "account.json", "audit-events.json"} <= set(names)


def test_a_second_copy_waits_for_the_first(browser: Client) -> None:
    browser.post(f"{PAGE}/export")
    page = browser.post(f"{PAGE}/export", follow=True).content.decode()
    assert "An export is already being prepared" in page
    assert DataSubjectRequest.objects.count() == 1


def test_an_account_ends_when_its_address_is_typed(browser: Client, grace: User) -> None:
    page = proved(browser, time.time()).get(PAGE).content.decode()
    assert "Membership ends in: Acme Research." in page
    refused = browser.post(f"{PAGE}/erase", {"confirmation": "somebody@else.example"})
    assert refused.status_code == 400
    assert 'value="somebody@else.example"' in refused.content.decode()
    assert not DataSubjectRequest.objects.exists()
    browser.post(f"{PAGE}/erase", {"confirmation": "Grace@acme.example"})
    run_data_requests()
    assert DataSubjectRequest.objects.get().state == RequestState.DONE
    assert browser.get(PAGE).status_code == 302
    grace.refresh_from_db()
    assert grace.erased_at is not None


@pytest.mark.parametrize("has_proved", [False, True])
def test_a_session_is_asked_for_the_password_first_and_again_after_a_while(
    browser: Client, grace: User, has_proved: bool
) -> None:
    if has_proved:
        proved(browser, time.time() - 3600)
    reply = browser.post(f"{PAGE}/erase", {"confirmation": grace.email})
    assert reply.status_code == 302
    assert "/accounts/reauthenticate/" in reply.headers["location"]
    assert not DataSubjectRequest.objects.exists()


def test_a_sole_owner_is_told_why_not(member: Client, org: SeededOrganization) -> None:
    page = member.get(PAGE).content.decode()
    assert "Acme Research has no other owner" in page
    assert "Erase my account" not in page
    reply = proved(member, time.time()).post(f"{PAGE}/erase", {"confirmation": org.owner.email})
    assert reply.status_code == 400
    assert not DataSubjectRequest.objects.exists()


def test_an_outsider_gets_nobody_elses_copy(browser: Client, stranger: Client) -> None:
    browser.post(f"{PAGE}/export")
    run_data_requests()
    data_request = DataSubjectRequest.objects.get()
    assert stranger.get(f"{PAGE}/{data_request.id}").status_code == 404
    assert data_request.id not in stranger.get(PAGE).content.decode()
    for path in ("", f"/{data_request.id}"):
        assert Client().get(f"{PAGE}{path}").status_code == 302
    for verb in ("export", "erase"):
        assert Client().post(f"{PAGE}/{verb}").status_code == 302
        assert browser.get(f"{PAGE}/{verb}").status_code in (404, 405)
    assert DataSubjectRequest.objects.count() == 1


def test_the_page_takes_few_queries(browser: Client, django_assert_max_num_queries: object) -> None:
    with django_assert_max_num_queries(10):  # type: ignore[operator]
        assert browser.get(PAGE).status_code == 200


def test_an_export_of_long_ago_is_offered_no_more(browser: Client) -> None:
    browser.post(f"{PAGE}/export")
    run_data_requests()
    url = f"{PAGE}/{DataSubjectRequest.objects.get().id}"
    assert browser.get(url).status_code == 200
    DataSubjectRequest.objects.update(finished_at=timezone.now() - timedelta(days=8))
    purge_exports()
    assert url not in browser.get(PAGE).content.decode()
    assert browser.get(url).status_code == 404
