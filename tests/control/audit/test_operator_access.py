"""An operator's look into a tenant is a deed: who saw what of whose, once a minute for the same."""

from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from control.accounts.models import User
from control.admin.base import row_url
from control.api_keys.models import ApiKey
from control.audit.models import AuditEvent
from control.audit.selectors import events
from tests.fixtures.organizations import SeededOrganization, make_model

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def operator() -> User:
    return User.objects.create_superuser("op@penstock.test")


@pytest.fixture
def browser(operator: User) -> Client:
    client = Client(REMOTE_ADDR="203.0.113.7")
    client.force_login(operator)
    return client


def page(table: str, row_id: str, which: str = "change") -> str:
    return row_url(f"admin:{table}_{which}", row_id)


def looks() -> list[tuple[str, str, str]]:
    found = AuditEvent.objects.filter(action__endswith=".viewed_by_operator").order_by("id")
    return [(deed.action, deed.target_kind, deed.target_id) for deed in found]


def test_a_look_says_who_saw_what_of_whose_and_whence(
    org: SeededOrganization, key: ApiKey, operator: User, browser: Client
) -> None:
    reply = browser.get(page("api_keys_apikey", key.id))
    assert reply.status_code == 200
    [deed] = events(org.id, limit=1)
    assert (deed.action, deed.target_kind, deed.target_id) == (
        "organization.viewed_by_operator",
        "apikey",
        key.id,
    )
    assert (deed.actor_kind, deed.actor_id) == ("user", operator.id)
    assert (deed.address, deed.request_id) == ("203.0.113.7", reply.headers["x-request-id"])
    assert deed.details == {"page": "api_keys_apikey_change"}


def test_a_minute_of_the_same_is_one_look(
    org: SeededOrganization, key: ApiKey, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [
        page("organizations_organization", org.id),
        page("organizations_organization", org.id, "history"),
        page("organizations_project", org.project.id),
    ]
    for each in [*pages, *pages]:
        assert browser.get(each).status_code == 200
    once = [
        ("organization.viewed_by_operator", "organization", org.id),
        ("organization.viewed_by_operator", "project", org.project.id),
    ]
    assert looks() == once
    cache.clear()
    browser.get(pages[0])
    assert looks() == once
    cache.clear()
    later = timezone.now() + timedelta(seconds=61)
    monkeypatch.setattr("control.audit.services.timezone.now", lambda: later)
    browser.get(pages[0])
    assert looks() == [*once, once[0]]


def test_two_operators_look_twice(org: SeededOrganization, browser: Client) -> None:
    other = Client()
    other.force_login(User.objects.create_superuser("op2@penstock.test"))
    for client in (browser, other):
        client.get(page("organizations_organization", org.id))
    assert len(looks()) == 2


def test_a_list_that_is_narrowed_to_an_organization_is_a_look(
    org: SeededOrganization, browser: Client
) -> None:
    browser.get(f"/admin/api_keys/apikey/?q={org.id}")
    browser.get(f"{reverse('admin:cockpit_statement')}?organization={org.id}")
    assert looks() == [("organization.viewed_by_operator", "organization", org.id)]


def test_a_person_is_looked_at_too(org: SeededOrganization, browser: Client) -> None:
    browser.get(page("accounts_user", org.owner.id))
    assert looks() == [("user.viewed_by_operator", "user", org.owner.id)]


def test_what_is_no_tenants_or_was_not_shown_is_no_look(
    org: SeededOrganization, outsider: SeededOrganization, browser: Client
) -> None:
    browser.get("/admin/")
    browser.get("/admin/organizations/organization/")
    assert browser.get(page("catalog_model", make_model().id)).status_code == 200
    browser.get(page("organizations_organization", "org_none"))
    Client().get(page("organizations_organization", org.id))
    outsider.browser().get(page("organizations_organization", org.id))
    assert looks() == []
