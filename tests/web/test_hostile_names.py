"""Names that attack whoever shows them: each goes through every form, and what takes it shows it
harmless on every page, in every file and in every mail."""

import csv
import html
from io import StringIO
from typing import Any

import pytest
from django.test import Client

from control.keys.models import ApiKey
from control.tenants.models import Organization, Project, User
from control.webhooks.models import Endpoint
from tests.fixtures.mails import delivered, html_of
from tests.fixtures.organizations import SeededOrganization
from tests.fixtures.routes import routes
from web.console.page import address

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
) -> tuple[str, dict[str, str]]:
    """Return a form's address, and what is sent there with a text for a name."""
    of = {"project_rename": [org.project.id], "key_edit": [key.id]}
    fields: dict[str, Any] = {"name": text, "project": org.project.id, "scopes": "inference"}
    if section == "webhook_new":
        fields = {"url": "https://1.1.1.1/x", "kinds": ["key.created"], "description": text}
    if section == "sso_roles":
        fields = {"role_claim": text, "role_map": f"{text} = viewer", "default_role": "viewer"}
    return address(org.organization, section, *of.get(section, [])), fields


@pytest.mark.parametrize("section", FORMS)
@pytest.mark.parametrize("text", REFUSED, ids=ascii)
def test_what_is_no_name_is_refused(
    member: Client, org: SeededOrganization, key: ApiKey, section: str, text: str
) -> None:
    where, fields = sent(org, key, section, text)
    if section in OPTIONAL and not text.strip():
        return
    reply = member.post(where, fields)
    shown = reply.content.decode()
    assert reply.status_code in (200, 400)
    assert 'class="error"' in shown or "alert-bad" in shown
    assert Project.objects.get().name == "Default"
    assert ApiKey.objects.get().name == "Backend"
    assert not Endpoint.objects.exists()


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_a_name_is_shown_harmless_everywhere(
    member: Client, org: SeededOrganization, key: ApiKey, prices: object, text: str
) -> None:
    other = f"{text} 2"  # names of projects are of one each
    for section in FORMS:
        where, fields = sent(org, key, section, text)
        if section == "project_rename":
            fields["name"] = other
        assert member.post(where, fields).status_code in (200, 201, 302), section
    User.objects.filter(id=org.owner.id).update(name=text)
    member.post(
        address(org.organization, "team_invite"), {"email": "x@example.com", "role": "viewer"}
    )
    assert Organization.objects.get().name == text
    assert set(Project.objects.values_list("name", flat=True)) == {text, other}
    ids = {"organization_id": org.organization.id, "project_id": org.project.id}
    ids |= {"key_id": key.id, "endpoint_id": Endpoint.objects.get().id}
    shown = 0
    for route in routes("console"):
        reply = member.get(route.path(ids))
        if reply.status_code == 200:
            shown += check_harmless(reply, text)
    assert shown >= 12
    invitation = delivered()[-1]
    assert "\n" not in invitation.subject
    assert html.escape(text) in html_of(invitation)
    assert text in str(invitation.body)


def check_harmless(reply: Any, text: str) -> bool:
    """Fail where a text is more than a text; return whether it is there."""
    body = b"".join(reply) if reply.streaming else reply.content
    if reply["content-type"].startswith("text/html"):
        page = body.decode()
        if "<" in text:
            assert text not in page
        return html.escape(text) in page
    if reply["content-type"].startswith("text/csv"):
        cells = [cell for row in csv.reader(StringIO(body.decode())) for cell in row]
        assert not [cell for cell in cells if cell[:1] in tuple("=@\t\r")]
        return any(text in cell for cell in cells)
    return False
