"""The credit balance and the credit grants in the management API, for the customer."""

import pytest
from django.utils import timezone

from billing.credit.models import CreditGrant, GrantKind
from billing.credit.selectors import binding_limit
from billing.credit.services.grants import grant_credit
from control.api_keys.services import create_api_key
from control.limits.spending import add_limit
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_organization

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


@pytest.fixture
def org() -> SeededOrganization:
    return make_organization("Acme")


def test_the_balance_names_the_limit_that_binds_whose_requests_are_asked_about(org):
    api, now = org.api(), timezone.now()
    grant_credit(
        organization_id=org.id, kind=GrantKind.PREPAID, amount_nanos=1_000, idempotency_key="x",
        actor=OPERATOR, reason="test", now=now,
    )  # fmt: skip
    key, _ = create_api_key(actor=org.actor, project=org.project, name="Backend")
    for owner, nanos in ((org.organization, 300), (org.project, 200), (key, 100)):
        add_limit(
            actor=OPERATOR, organization=org.organization, owner_id=owner.id, period="week",
            limit_nanos=nanos, is_hard=True, now=now,
        )  # fmt: skip
    asked = {
        "": (org.organization, {}),
        f"?project_id={org.project.id}": (org.project, {"project": org.project}),
        f"?api_key_id={key.id}": (key, {"key": key}),
    }
    for query, (owner, whose) in asked.items():
        found = binding_limit(org.organization, now, **whose)
        bound = api.get(f"credit-balance{query}").json()["binding_limit"]
        assert bound["id"] == found.budget_id == f"limit:{owner.id}:week"
        assert (bound["owner"]["id"], bound["owner"]["name"]) == (owner.id, owner.name)
        assert (bound["period"], bound["available_nanos"]) == ("week", found.available_nanos)
    other = make_organization("Other")
    for query in (f"project_id={other.project.id}", "api_key_id=key_none"):
        assert api.get(f"credit-balance?{query}").status_code == 404
    assert api.get("credit-balance?project=x").status_code == 400


def test_credit_is_listed_newest_first_with_kind_rest_and_expiry(org):
    now = timezone.now()
    given = CreditGrant.objects.filter(organization_id=org.id).count()
    ends_at = now + timezone.timedelta(days=1)
    for kind in (GrantKind.PROMOTIONAL, GrantKind.PREPAID):
        grant_credit(
            organization_id=org.id, kind=kind, amount_nanos=10, idempotency_key=kind,
            actor=OPERATOR, reason="secret of ours", now=now, expires_at=ends_at,
        )  # fmt: skip
    reply = org.api().get("credit-grants?limit=2")
    rows = reply.json()["data"]
    assert {row["kind"] for row in rows} == {"promotional", "prepaid"}
    for row in rows:
        assert (row["amount_nanos"], row["remaining_nanos"], row["state"]) == (10, 10, "active")
        assert timezone.datetime.fromisoformat(row["expires_at"]) == ends_at
    assert "secret of ours" not in reply.content.decode()
    assert (reply.json()["next"] is None) == (given == 0)
