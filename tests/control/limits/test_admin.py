"""Limit tiers and organizations' own limits at the operator's admin."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from control.accounts.models import User
from control.audit.models import AuditEvent
from control.limits.models import (
    RATE_LIMIT_FIELDS,
    RateLimitOverride,
    UsageTier,
    UsageTierModelLimit,
)
from tests.fixtures.organizations import SeededOrganization, make_model

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
NONE = dict.fromkeys(RATE_LIMIT_FIELDS, "")


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("operator@example.com"))
    return client


def inline(*rows: dict[str, Any], initial: int = 0) -> dict[str, Any]:
    """Return the table of single models as a form sends it."""
    sent: dict[str, Any] = {
        "model_limits-TOTAL_FORMS": len(rows), "model_limits-INITIAL_FORMS": initial,
    }  # fmt: skip
    for number, row in enumerate(rows):
        sent |= {f"model_limits-{number}-{name}": value for name, value in row.items()}
    return sent


def test_a_tier_is_made_and_changed_with_its_models(
    operator: Client, org: SeededOrganization
) -> None:
    model = make_model()
    add, asked = reverse("admin:limits_usagetier_add"), NONE | {"requests_per_minute": "60"}
    row = NONE | {"model": model.id, "concurrent_requests": "4"}
    reply = operator.post(add, asked | {"name": "Gold", "paid_min_nanos": "50"} | inline(row))
    assert reply.status_code == 302
    tier = UsageTier.objects.get()
    assert (tier.name, tier.paid_min_nanos, tier.requests_per_minute) == ("Gold", 50 * 10**9, 60)
    [limited] = UsageTierModelLimit.objects.all()
    assert (limited.model, limited.concurrent_requests) == (model, 4)
    change = reverse("admin:limits_usagetier_change", args=[tier.id])
    gone = row | {"id": limited.pk, "tier": tier.id, "DELETE": "on"}
    asked |= {"name": "Gold", "paid_min_nanos": "50", "output_tokens_per_minute": "900"}
    asked |= {"service_tiers": "default\nflex"}
    assert operator.post(change, asked | inline(gone, initial=1)).status_code == 302
    tier.refresh_from_db()
    assert (tier.requests_per_minute, tier.output_tokens_per_minute) == (60, 900)
    assert tier.service_tiers == ["default", "flex"]
    assert not UsageTierModelLimit.objects.exists()
    assert AuditEvent.objects.filter(target_id=tier.id).count() == 4


def test_an_organization_gets_limits_of_its_own_and_its_tiers_back(
    operator: Client, org: SeededOrganization
) -> None:
    add = reverse("admin:limits_ratelimitoverride_add")
    asked = NONE | {"organization": org.id, "model": "", "requests_per_minute": "600"}
    assert operator.post(add, asked).status_code == 302
    row = RateLimitOverride.objects.get()
    assert (row.organization_id, row.model, row.requests_per_minute) == (org.id, None, 600)
    change = reverse("admin:limits_ratelimitoverride_change", args=[row.pk])
    assert operator.post(change, NONE | {"concurrent_requests": "9"}).status_code == 302
    row.refresh_from_db()
    assert (row.requests_per_minute, row.concurrent_requests) == (None, 9)
    page = reverse("admin:limits_ratelimitoverride_changelist")
    operator.post(page, {"action": "lift", "_selected_action": row.pk})
    assert not RateLimitOverride.objects.exists()
    assert AuditEvent.objects.filter(action="organization.rate_limits_updated").count() == 3


def test_a_zero_is_refused_in_the_form(operator: Client, org: SeededOrganization) -> None:
    add = reverse("admin:limits_usagetier_add")
    asked = NONE | {"name": "Gold", "paid_min_nanos": "0", "requests_per_minute": "0"}
    reply = operator.post(add, asked | inline())
    assert reply.status_code == 200
    assert "greater than or equal to 1" in reply.content.decode()
    assert not UsageTier.objects.exists()
