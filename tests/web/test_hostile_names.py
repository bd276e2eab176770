"""Names that attack whoever shows them: each goes through every form, and what takes it shows it
harmless on every page, in every file and in every mail."""

import csv
import html
from collections import Counter
from io import StringIO
from typing import Any

import pytest
from django.test import Client

from control.accounts.models import User
from control.api_keys.models import ApiKey
from control.organizations.models import Invitation, Organization, Project
from control.webhooks.models import WebhookEndpoint
from tests.fixtures.mails import delivered, html_of
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.routes import routes
from web.console.base import address

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
SHOWN = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert('1')>",
    "=cmd|' /C calc'!A0",
    "+1-1\"'",
    "@SUM(1,1);\\",
    "-2+3{{ 7*7 }}{% now 'Y' %}",
    "%s %(x)s {0} ${x}",
    "ünï 日本語 مرحبا 🦆",
]
"""What is a name, however it looks."""
REFUSED = [
    "\u202egnp.exe",
    "a\x00b",
    "\x1b[31mred",
    "a\r\nBcc: eve@example.com",
    "\u2066x",
    "x" * 10_000,
    " ",
    "\u200b",
]
"""What is none: it shows as something else, or not at all."""
FORMS = ["project_new", "settings_rename", "key_new", "project_rename", "key_edit", "webhook_new"]
FORMS += ["sso_roles"]
OPTIONAL = {"webhook_new", "sso_roles"}
"""Forms whose text may be empty."""


def sent(
    org: SeededOrganization, key: ApiKey, section: str, text: str
) -> tuple[str, dict[str, Any]]:
    """Return a form's address, and what is sent there with a text for a name."""
    of = {"project_rename": [org.project.id], "key_edit": [key.id]}
    fields: dict[str, Any] = {"name": text, "project": org.project.id, "scopes": "inference"}
    if section == "webhook_new":
        fields = {
            "url": "https://1.1.1.1/x",
            "event_types": ["api_key.created"],
            "description": text,
        }
    if section == "sso_roles":
        fields = {"role_claim": text, "role_map": f"{text} = viewer", "default_role": "viewer"}
    return address(org.organization, section, *of.get(section, [])), fields


@pytest.mark.parametrize("section", FORMS)
def test_what_is_no_name_is_refused(
    member: Client, org: SeededOrganization, key: ApiKey, section: str
) -> None:
    for text in REFUSED:
        if section in OPTIONAL and not text.strip():
            continue
        where, fields = sent(org, key, section, text)
        reply = member.post(where, fields)
        shown = reply.content.decode()
        assert reply.status_code in (200, 400), ascii(text)
        assert 'class="error"' in shown or "alert-bad" in shown, ascii(text)
    assert Project.objects.get().name == "Default"
    assert ApiKey.objects.get().name == "Backend"
    assert not WebhookEndpoint.objects.exists()


def test_names_are_harmless_on_every_page_and_in_every_file(
    member: Client, org: SeededOrganization, key: ApiKey, prices: object
) -> None:
    """All of them at once, and what each names by itself."""
    for number, text in enumerate(SHOWN):
        for section in ("project_new", "key_new", "webhook_new"):
            where, fields = sent(org, key, section, text)
            assert member.post(where, fields).status_code in (201, 302), section
        for section in ("project_rename", "key_edit"):
            where, fields = sent(org, key, section, f"{text} {number}")
            assert member.post(where, fields).status_code == 302, section
    assert set(Project.objects.values_list("name", flat=True)) > set(SHOWN)
    ids = {"organization_id": org.organization.id, "project_id": org.project.id, "key_id": key.id}
    ids["endpoint_id"] = WebhookEndpoint.objects.earliest("id").id
    pages = [route.path(ids) for route in routes("console")]
    shown = Counter(text for url in pages for text in harmless(member.get(url), SHOWN))
    assert all(shown[text] >= 12 for text in SHOWN), shown
    for text in SHOWN:
        for section, objects, field in (
            ("project", Project.objects, "name"),
            ("key", ApiKey.objects, "name"),
            ("webhook", WebhookEndpoint.objects, "description"),
        ):
            named = objects.get(**{field: text})
            page = member.get(address(org.organization, section, named.id))
            assert text in harmless(page, [text]), section


def test_an_organizations_and_a_persons_name_are_harmless(
    member: Client, org: SeededOrganization
) -> None:
    invite = {"email": "x@example.com", "role": "viewer"}
    for text in SHOWN:
        for section in ("settings_rename", "sso_roles"):
            where, fields = sent(org, ApiKey(), section, text)
            assert member.post(where, fields).status_code == 302, section
        User.objects.filter(id=org.owner.id).update(name=text)
        assert Organization.objects.get().name == text
        for section in ("overview", "settings", "team", "sso", "settings_delete"):
            page = member.get(address(org.organization, section))
            assert text in harmless(page, [text]), section
        member.post(address(org.organization, "team_invite"), invite)
        invitation = delivered()[-1]
        assert "\n" not in invitation.subject
        assert html.escape(text) in html_of(invitation)
        assert text in str(invitation.body)
        Invitation.objects.all().delete()
    assert len(delivered()) == len(SHOWN)
    harmless(member.get(address(org.organization, "audit_csv")), SHOWN)


def harmless(reply: Any, texts: list[str]) -> list[str]:
    """Fail where a text is more than a text; return those that are there."""
    content = b"".join(reply) if reply.streaming else reply.content
    kind = reply["content-type"].partition(";")[0]
    if reply.status_code != 200 or kind not in ("text/html", "text/csv"):
        return []
    body = content.decode()
    if kind == "text/html":
        assert not [text for text in texts if "<" in text and text in body]
        return [text for text in texts if html.escape(text) in body]
    cells = [cell for row in csv.reader(StringIO(body)) for cell in row]
    assert not [cell for cell in cells if cell[:1] in tuple("=@\t\r")]
    return [text for text in texts if any(text in cell for cell in cells)]
