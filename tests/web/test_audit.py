"""The audit in the console: everything that was done, for who may see it, and as a file."""

import csv
from io import StringIO

import pytest
from django.test import Client

from control.audit.services import record
from control.organizations.services import rename_organization
from control.permissions import Actor
from tests.fixtures.organizations import SeededOrganization
from web.console.base import address

pytestmark = pytest.mark.integration


def note(
    org: SeededOrganization, action: str = "api_key.created", by: str = "ada", **details: object
) -> None:
    """Write a deed down."""
    record(
        actor=Actor(kind="key", id="key_1", name=by),
        action=action,
        target_kind="api_key",
        target_id="key_1",
        target_name="Backend (pen_live_abc…wxyz)",
        organization_id=org.organization.id,
        details=details,
    )


def shown(client: Client, org: SeededOrganization, **parameters: str) -> str:
    return client.get(address(org.organization, "audit", **parameters)).content.decode()


def test_what_was_done_is_told_with_before_and_after(
    member: Client, org: SeededOrganization
) -> None:
    rename_organization(actor=org.actor, organization=org.organization, name="Acme Labs")
    note(org, "organization.limit_set", before={"limit_nanos": None}, after={"limit_nanos": 10**9})
    page = shown(member, org)
    assert "organization.renamed" in page
    assert "Acme Research → Acme Labs" in page
    assert "no limit → $1.00" in page
    assert "Backend (pen_live_abc…wxyz)" in page


def test_filters_leave_out_what_is_not_asked_for(member: Client, org: SeededOrganization) -> None:
    note(org, "api_key.created", by="grace@acme.example")
    note(org, "member.invited", by="alan@acme.example")
    assert "alan@" not in shown(member, org, about="api_key")
    assert "grace@" not in shown(member, org, by="alan")
    assert "grace@" in shown(member, org, by="GRACE")
    assert "matches these filters" in shown(member, org, to="2020-01-01")


@pytest.mark.parametrize("value", ["x" * 10_000, "-1", "9" * 30, "\u202e", "%", "'; --"])
def test_a_strange_question_is_answered(
    member: Client, org: SeededOrganization, value: str
) -> None:
    url = address(org.organization, "audit")
    for parameter in ("before", "about", "by", "from", "to"):
        assert member.get(url, {parameter: value}).status_code == 200, parameter


def test_pages_follow_one_another_without_a_gap(member: Client, org: SeededOrganization) -> None:
    for number in range(60):
        note(org, name=f"key number {number}.")
    first = member.get(address(org.organization, "audit"))
    second = member.get(first.context["older_url"])
    seen = [
        dict(row.changes).get("Name") for page in (first, second) for row in page.context["rows"]
    ]
    wanted = [f"key number {number}." for number in reversed(range(60))]
    assert [name for name in seen if name and name.startswith("key number")] == wanted


def test_the_file_holds_it_all_and_no_formula(member: Client, org: SeededOrganization) -> None:
    for number in range(3):
        note(org, by="=cmd()", name=f"n{number}")
    reply = member.get(address(org.organization, "audit_csv", by="=cmd"))
    lines = list(csv.DictReader(StringIO(b"".join(reply.streaming_content).decode())))
    assert [line["details"] for line in lines] == ["Name: n2", "Name: n1", "Name: n0"]
    assert {line["by"] for line in lines} == {"'=cmd()"}
    assert "attachment" in reply["content-disposition"]


def test_an_outsider_sees_only_their_own(
    stranger: Client, outsider: SeededOrganization, org: SeededOrganization
) -> None:
    note(org, by="grace@acme.example")
    assert "grace@" not in shown(stranger, outsider)
