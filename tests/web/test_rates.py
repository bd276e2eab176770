"""The page of rate limits: everybody sees them, who looks after limits sets them for projects and
keys, and nobody sees another organization's."""

import pytest
from django.test import Client

from control.accounts.models import User
from control.limits.rate_limits import create_usage_tier, own_limits, set_rate_limit_override
from control.organizations.models import Membership
from control.organizations.projects import create_project
from serving.contract.records import RateLimitSettings
from tests.fixtures.html_forms import form_to
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
NEW = {"requests_per_minute": "120", "concurrent_requests": "", "input_tokens_per_minute": ""}


@pytest.fixture
def page(org: SeededOrganization) -> str:
    return address(org.organization, "rates")


def test_where_one_stands_and_what_holds_is_shown(org, member, page):
    create_usage_tier(actor=OPERATOR, name="Gold", paid_min_nanos=50 * 10**9, figures={})
    set_rate_limit_override(
        actor=OPERATOR, organization=org.organization, model=None,
        figures={"requests_per_minute": 12_000},
    )  # fmt: skip
    text = member.get(page).content.decode()
    for words in (
        "Gold, automatically once",
        "$50.00",
        "12,000",
        "agreed with you",
        "not available right now",
    ):
        assert words in text


def test_a_project_is_limited_changed_and_lifted(org, member, page):
    asked = NEW | {"owner": org.project.id}
    reply = member.post(page, asked, follow=True)
    assert reply.redirect_chain == [(page, 302)]
    assert own_limits(org.organization, org.project.id) == RateLimitSettings(
        requests_per_minute=120
    )
    shown = member.get(page, {"owner": org.project.id}).content.decode()
    assert 'value="120"' in shown
    assert f"owner={org.project.id}#set" in shown
    member.post(page, asked | {"requests_per_minute": ""})
    assert own_limits(org.organization, org.project.id) == RateLimitSettings()


def test_who_chooses_another_owner_on_the_page_learns_of_its_limits_first(org, member, page):
    other = create_project(actor=org.actor, organization=org.organization, name="Search")
    member.post(page, NEW | {"owner": other.id})
    shown = form_to(member.get(page).content, page, page).values
    assert shown["shown_owner"] == shown["owner"] == [org.project.id]
    asked = shown | {"owner": [other.id], "concurrent_requests": ["7"]}
    reply = member.post(page, asked)
    assert reply.status_code == 409
    text = reply.content.decode()
    assert "Search has other limits than the page showed" in text
    assert "changed after you opened the page" not in text
    again = form_to(reply.content, page, page).values
    assert (again["requests_per_minute"], again["concurrent_requests"]) == (["120"], ["7"])
    assert member.post(page, again).status_code == 302
    limits = own_limits(org.organization, other.id)
    assert limits == RateLimitSettings(requests_per_minute=120, concurrent_requests=7)


@pytest.mark.parametrize(
    ("field", "value"),
    [("requests_per_minute", "0"), ("requests_per_minute", "x"), ("owner", "proj_other")],
)
def test_nonsense_is_told_in_the_form_and_changes_nothing(org, member, page, field, value):
    reply = member.post(page, NEW | {"owner": org.project.id, field: value})
    assert reply.status_code == 400
    assert 'class="error"' in reply.content.decode()
    assert own_limits(org.organization, org.project.id) == RateLimitSettings()


def test_lesser_roles_are_not_offered_to_limit(org, member, page):
    client = Client()
    user = User.objects.create_user("developer@acme.example")
    Membership.objects.create(user=user, organization=org.organization, role="developer")
    client.force_login(user)
    assert "Limit a project" in member.get(page).content.decode()
    assert "Limit a project" not in client.get(page).content.decode()


def test_an_outsider_limits_nobody_else(org, outsider, stranger):
    mine = address(outsider.organization, "rates")
    assert stranger.post(mine, NEW | {"owner": org.project.id}).status_code == 400
    assert stranger.get(mine, {"owner": org.project.id}).status_code == 200
    assert own_limits(org.organization, org.project.id) == RateLimitSettings()
