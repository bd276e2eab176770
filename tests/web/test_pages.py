"""Every page, visited once: it is shown, asks the database little, is light with all it loads, and
runs and loads nothing from elsewhere. None that the table of addresses has is left out."""

import gzip
import re
from functools import cache
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.http import HttpResponseBase
from django.test import Client
from django.test.utils import CaptureQueriesContext

from control.accounts.models import User
from control.organizations.services import suspend_organization
from tests.fixtures.organizations import OPERATOR, SeededOrganization
from tests.fixtures.shared_organization import SharedOrganization
from tests.web.sections import MAY_LOOK, PARAMETERS, address_of
from web.console.base import SECTIONS, address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]

QUERIES_MAX = 10
QUERIES_MAX_OF = {"overview": 8, "settings_delete": 16, "limits": 13, "running_pdf": 12, "sso": 11}
"""The overview is what everybody sees first; the others look at much that an organization has."""
BYTES_MAX = 100_000
"""Of a page with all it loads, compressed, for somebody who comes the first time."""
CHART_LIBRARY = "unfold/js/chart/chart.js"
OF_A_NEWCOMER = [name for name in MAY_LOOK if PARAMETERS[name] == ("organization_id",)]


def url(org: SeededOrganization, section: str) -> str:
    return address(org.organization, section)


def visit(browser: Client, name: str, where: str, **asked: str) -> HttpResponseBase:
    """Open a page, which asks the database little."""
    if name == "playground":
        browser.get(where)  # the first visit of all makes the member's key
    with CaptureQueriesContext(connection) as queries:
        reply = browser.get(where, asked)
        body = b"".join(reply) if reply.streaming else reply.content
    sent = [each["sql"] for each in queries if "SAVEPOINT" not in each["sql"]]
    assert len(sent) <= QUERIES_MAX_OF.get(name, QUERIES_MAX), sent
    assert reply.status_code == (302 if name in ("key_secret", "billing_saved") else 200)
    assert body or reply.status_code == 302 or name == "requests_jsonl"
    return reply


@pytest.mark.parametrize("name", MAY_LOOK)
def test_a_page_is_cheap_light_and_at_home(shared: SharedOrganization, name: str) -> None:
    where = address_of(name, shared.ids)
    browser = shared.browsers["owner"]
    reply = visit(browser, name, where)
    if reply.status_code == 200 and reply["content-type"].startswith("text/html"):
        assert_light(reply)
        assert_at_home(reply)
    visit(browser, name, where, project=shared.org.project.id)


@pytest.mark.parametrize("name", OF_A_NEWCOMER)
def test_so_is_a_newcomers(shared: SharedOrganization, name: str) -> None:
    visit(shared.browsers["newcomer"], name, url(shared.newcomer, name))


def assert_light(reply: HttpResponseBase) -> None:
    page = reply.content
    files = set(re.findall(r'(?:src|href)="/static/([^"#]+)', page.decode())) - {CHART_LIBRARY}
    assert files
    weights = {"": len(gzip.compress(page))} | {file: compressed(file) for file in files}
    assert sum(weights.values()) < BYTES_MAX, weights


@cache
def compressed(file: str) -> int:
    """Return the size of a static file as it is sent."""
    path = finders.find(file)
    assert path, file
    return len(gzip.compress(Path(path).read_bytes()))


def assert_at_home(reply: HttpResponseBase) -> None:
    """Nothing runs that the page itself brings, or comes from elsewhere."""
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


def test_a_suspended_organization_is_told_so_on_every_page(shared: SharedOrganization) -> None:
    suspend_organization(actor=OPERATOR, organization=shared.org.organization, reason="abuse")
    told = set()
    for name in MAY_LOOK:
        reply = shared.browsers["owner"].get(address_of(name, shared.ids))
        assert reply.status_code < 500, name
        is_page = reply.status_code == 200 and not reply.streaming and b"<main" in reply.content
        if is_page and b"sheet-page" not in reply.content:  # an invoice is a document
            assert b"uspended" in reply.content, name
            told.add(name)
    assert told >= SECTIONS.keys()
