"""The audit log names its objects and tells every field in words, with units and a word for what is
unset; the record itself keeps exact values."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Model as Row
from hypothesis import given
from hypothesis import strategies as st

from billing.invoicing.models import BillingProfile, LegalEntity, TaxRate
from billing.invoicing.services.profiles import set_billing_profile
from control.api_keys.services import CREATED_FIELDS, set_key_limit, update_api_key
from control.audit.changes import LABELS, changes_of, label_of, text_of
from control.audit.models import AuditEvent
from control.audit.pseudonyms import NameResolver
from control.catalog.services import (
    CREATED_MODEL_FIELDS,
    CREATED_VARIANT_FIELDS,
    DEPLOYMENT_FIELDS,
)
from control.limits.models import RATE_LIMIT_FIELDS
from control.organizations.projects import create_project
from control.permissions import Role
from control.pricing.services import BOOK_FIELDS, METERS
from control.sso.scim_members import NAMES, ScimProfile
from tests.fixtures.organizations import SeededOrganization

ROOT = Path(__file__).parents[3]
RECORDERS = {
    "record", "record_about", "_record", "_record_group", "_record_schedule",
    "send_account_event", "snapshot", "differences", "plain_values",
}  # fmt: skip
NOT_DETAILS = {
    "actor", "action", "target_kind", "target_id", "target_name", "organization_id", "details",
    "before", "after", "by",
}  # fmt: skip
ROWS: dict[type[Row], set[str]] = {
    BillingProfile: {"organization"},
    LegalEntity: {"id", "logo_svg", "next_invoice", "next_credit_note"},
    TaxRate: {"id"},
}
"""Models whose changed fields are recorded, and the fields that are not."""


def calls() -> Iterator[ast.Call]:
    """Yield the calls in the product that record something."""
    for folder in ("platform/control", "billing"):
        for path in (ROOT / folder).rglob("*.py"):
            if {"migrations", "economics", "reading"} & set(path.parts):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    function = node.func
                    name = getattr(function, "attr", getattr(function, "id", ""))
                    if name in RECORDERS:
                        yield node


def literal_names(node: ast.AST) -> set[str]:
    """Return the keys of the dictionaries in an expression that are not inside calls."""
    if isinstance(node, ast.Dict):
        keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        return keys.union(*(literal_names(value) for value in node.values))
    return set()


def recorded_fields() -> set[str]:
    """Return the name of every field that the code records."""
    names: set[str] = set()
    for call in calls():
        names |= {each.arg for each in call.keywords if each.arg}
        for value in (*call.args, *(each.value for each in call.keywords)):
            names |= literal_names(value)
    for model, without in ROWS.items():
        names |= {field.name for field in model._meta.concrete_fields} - without
    fields = (
        CREATED_FIELDS, CREATED_MODEL_FIELDS, CREATED_VARIANT_FIELDS, DEPLOYMENT_FIELDS,
        RATE_LIMIT_FIELDS, BOOK_FIELDS, METERS, set(ScimProfile.__dataclass_fields__) - set(NAMES),
    )  # fmt: skip
    return names.union(*fields) - NOT_DETAILS


def test_every_field_that_is_recorded_has_a_label() -> None:
    names = recorded_fields()
    assert len(names) > 100
    assert not {name for name in names if name not in LABELS}
    assert not {name for name in names if "_" in label_of(name)}


WORDS = [
    ("spend_limit_nanos", 20_000_000, "$0.02 a month"),
    ("spend_limit_nanos", None, "no limit"),
    ("allowed_models", None, "any"),
    ("allowed_models", ["large", "small"], "large, small"),
    ("expires_at", None, "never"),
    ("expires_at", "2027-01-01T00:00:00+00:00", "2027-01-01 00:00:00 UTC"),
    ("hourly_cost_nanos", 2_500_000_000, "$2.50 an hour"),
    ("input_nanos", 150_000_000, "$0.15 per million tokens"),
    ("requests_per_minute", 1_000, "1,000 a minute"),
    ("amount_cents", 2_550, "$25.50"),
    ("rate_basis_points", 1_900, "19 %"),
    ("alert_percents", [50, 80], "50 %, 80 %"),
    ("alert_percents", [], "off"),
    ("organization_ids", None, "all organizations"),
    ("organization_ids", [], "nobody"),
    ("sleep_after_seconds", 0.0, "never"),
    ("queue_seconds", 30.0, "30 s"),
    ("terms_days", 14, "14 days"),
    ("is_hard", True, "yes"),
    ("default_variant", {"id": "var_1", "name": "small:int8"}, "small:int8"),
    ("map", {"engineers": "developer"}, "engineers: developer"),
    ("recipients", [], "none"),
    ("credit_days", None, "without end"),
    ("expires_at", "2026-12-05T09:44:19+01:00", "2026-12-05 08:44:19 UTC"),
    ("expires_at", "9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59-01:00"),
    ("name", "2026-11-28 08:00:00 nightly", "2026-11-28 08:00:00 nightly"),
    ("reason", "2026-11-28 08:12:00", "2026-11-28 08:12:00"),
]


@pytest.mark.parametrize(("name", "value", "words"), WORDS)
def test_a_value_is_told_in_words(name: str, value: Any, words: str) -> None:
    assert text_of(name, value) == words


@given(st.dictionaries(st.sampled_from(sorted(LABELS)), st.text() | st.datetimes().map(str)))
def test_any_text_is_told(details: dict[str, str]) -> None:
    assert len(changes_of({"before": details, "after": details} | details)) == len(details)


def last(org: SeededOrganization, action: str) -> tuple[str, list[tuple[str, str]], dict[str, Any]]:
    event = AuditEvent.objects.filter(organization_id=org.id, action=action).latest("id")
    names = NameResolver([event])
    return names.target(event), changes_of(names.details(event)), event.details


@pytest.mark.django_db
def test_a_change_is_told_from_old_to_new_and_kept_exactly(org: SeededOrganization) -> None:
    key, _ = org.mint(spend_limit_nanos=20_000_000)
    target, changes, _ = last(org, "api_key.created")
    assert target == str(key)
    assert dict(changes) == {
        "Name": "Backend", "Project": "Default", "Kind": "standard", "Permissions": "inference",
        "Allowed models": "any", "Allowed networks": "any", "Expires": "never",
        "Spending limit": "$0.02 a month",
    }  # fmt: skip
    set_key_limit(actor=org.actor, key=key, spend_limit_nanos=None)
    target, changes, details = last(org, "api_key.limit_set")
    assert (target, changes) == (str(key), [("Spending limit", "$0.02 a month → no limit")])
    assert details["before"] == {"spend_limit_nanos": 20_000_000}
    update_api_key(actor=org.actor, key=key, allowed_models=["small"])
    assert last(org, "api_key.updated")[1] == [("Allowed models", "any → small")]


@pytest.mark.django_db
def test_a_billing_profiles_fields_are_told(org: SeededOrganization) -> None:
    values = {"legal_name": "Acme Labs GmbH", "country": "DE", "city": ""}
    set_billing_profile(organization=org.organization, actor=org.actor, changes=values)
    target, changes, _ = last(org, "billing_profile.set")
    assert target == org.organization.name
    assert dict(changes) == {"Legal name": "none → Acme Labs GmbH", "Country": "none → DE"}


@pytest.mark.django_db
def test_people_are_named_and_kept_by_reference(org: SeededOrganization) -> None:
    user = org.join(Role.VIEWER)
    target, _, _ = last(org, "member.invitation_accepted")
    event = AuditEvent.objects.get(organization_id=org.id, action="member.invitation_accepted")
    assert (target, event.target_name) == (user.email, f"⟦{user.id}⟧")


@pytest.mark.django_db
def test_a_project_is_told_with_all_that_was_set(org: SeededOrganization) -> None:
    create_project(actor=org.actor, organization=org.organization, name="Search")
    target, changes, _ = last(org, "project.created")
    assert (target, dict(changes)["Spending limit"]) == ("Search", "no limit")
    assert dict(changes)["Pages that may call"] == "none"
    assert not [text for _, text in changes if re.search(r"None|nothing|_nanos", text)]
