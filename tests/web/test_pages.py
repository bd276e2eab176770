"""Every page: who sees it, and what it may load."""

import re

import pytest
from django.test import Client

from control.tenants.models import Membership, Role, User
from control.tenants.permissions import can
from tests.fixtures.organizations import SeededOrganization
from web.console.page import FOR_SOME, SECTIONS, address

pytestmark = pytest.mark.integration

PAGES = [*SECTIONS, "key_new"]


def url(org: SeededOrganization, section: str) -> str:
    return address(org.organization, section)


@pytest.mark.parametrize("section", PAGES)
def test_an_owner_sees_it(
    member: Client, org: SeededOrganization, traffic: None, section: str
) -> None:
    assert member.get(url(org, section)).status_code == 200


@pytest.mark.parametrize(
    "section", [*PAGES, "usage_csv", "requests_csv", "requests_jsonl", "audit_csv"]
)
def test_an_outsider_finds_nothing(stranger: Client, org: SeededOrganization, section: str) -> None:
    assert stranger.get(url(org, section)).status_code == 404


@pytest.mark.parametrize("section", PAGES)
def test_who_is_not_signed_in_is_asked_to(
    client: Client, org: SeededOrganization, section: str
) -> None:
    reply = client.get(url(org, section))
    assert reply.status_code == 302
    assert reply["location"].startswith("/accounts/login/?next=")


@pytest.mark.parametrize("role", Role.values)
@pytest.mark.parametrize("section", SECTIONS)
def test_every_role_may_look_at_what_it_may_see(
    client: Client, org: SeededOrganization, section: str, role: str
) -> None:
    user = User.objects.create_user(f"{role}@acme.example")
    Membership.objects.create(organization=org.organization, user=user, role=role)
    client.force_login(user)
    may = section not in FOR_SOME or can(role, FOR_SOME[section])
    assert client.get(url(org, section)).status_code == (200 if may else 403)
    offered = client.get(url(org, "overview")).content.decode()
    assert (f'href="{url(org, section)}"' in offered) is may


@pytest.mark.parametrize("section", SECTIONS)
def test_new_organizations_see_a_next_step(
    member: Client, org: SeededOrganization, section: str
) -> None:
    assert member.get(url(org, section)).status_code == 200


@pytest.mark.parametrize("section", PAGES)
def test_nothing_runs_or_comes_from_elsewhere(
    member: Client, org: SeededOrganization, traffic: None, section: str
) -> None:
    reply = member.get(url(org, section))
    policy, page = reply["content-security-policy"], reply.content.decode()
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy.split("; ")
    assert not re.search(r"<script(?![^>]*(src=|application/json))", page)
    assert not re.search(r"\s(style|on[a-z]+)=|<style|javascript:", page)
    assert not re.search(r"(src|href|action)=\"(https?:)?//", page)


def test_the_rail_leads_to_pages_that_exist(member: Client, org: SeededOrganization) -> None:
    page = member.get(url(org, "overview")).content.decode()
    links = set(re.findall(r'href="(/[^"#]*)"', page))
    answers = {link: member.get(link).status_code for link in links if "/static/" not in link}
    assert set(answers.values()) <= {200, 302}, answers


def test_only_operators_see_the_way_to_the_admin(member: Client, org: SeededOrganization) -> None:
    assert b"/admin/" not in member.get(url(org, "overview")).content
    User.objects.filter(id=org.owner.id).update(operator_role="viewer")
    assert b"/admin/" in member.get(url(org, "overview")).content


def test_another_organizations_project_is_not_found(
    member: Client, org: SeededOrganization, outsider: SeededOrganization
) -> None:
    mine = {"project": org.project.id}
    assert member.get(url(org, "usage"), mine).status_code == 200
    theirs = {"project": outsider.project.id}
    assert member.get(url(org, "usage"), theirs).status_code == 404


def test_the_way_in_is_the_first_organization(member: Client, org: SeededOrganization) -> None:
    assert member.get("/")["location"] == url(org, "overview")


def test_who_has_no_organization_is_told(client: Client, db: None) -> None:
    client.force_login(User.objects.create_user("alone@nowhere.example"))
    reply = client.get("/")
    assert reply.status_code == 404
    assert b"not a member of any organization" in reply.content
    assert b"/admin/" not in reply.content


def test_an_operator_without_organization_is_shown_to_the_admin(client: Client, db: None) -> None:
    client.force_login(User.objects.create_superuser("operator@nowhere.example"))
    assert b'href="/admin/"' in client.get("/").content


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_remembered_without_script(
    member: Client, org: SeededOrganization, theme: str
) -> None:
    overview = url(org, "overview")
    reply = member.post("/theme", {"theme": theme, "next": overview})
    assert reply["location"] == overview
    assert f'data-theme="{theme}"' in member.get(overview).content.decode()


def test_the_theme_switch_leads_nowhere_else(member: Client, org: SeededOrganization) -> None:
    reply = member.post("/theme", {"theme": "dark", "next": "https://evil.example/"})
    assert reply["location"] == "/"
