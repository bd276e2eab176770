"""An organization that has one of most things, for what is tried on every route."""

from datetime import datetime
from typing import Any

from django.utils import timezone

from billing.alerts.models import Alert, AlertKind
from billing.metering.ingest import ingest
from billing.payments.services.automatic import set_auto_top_up
from billing.simulation.stripe_double import StripeDouble
from control.budgets.services import add_limit
from control.keys.services import rotate_key
from control.tenants.services import archive_project, create_project, invite_member
from control.webhooks.services import create_endpoint, send_test
from tests.support.console import make_catalog, make_request
from tests.support.organizations import House
from tests.support.paying import ask_top_up, save_card
from tests.support.usage import make_batch

AUTO_TOP_UP: dict[str, Any] = {
    "is_on": True,
    "threshold_cents": 1000,
    "amount_cents": 5000,
    "monthly_cap_cents": 50_000,
}


def furnish(house: House, double: StripeDouble) -> dict[str, str]:
    """Give an organization one of most things; return their ids, by the names that parameters of
    addresses have."""
    now = timezone.now()
    return {
        "organization_id": house.id,
        "project_id": house.project.id,
        "member_id": house.seat(house.join("viewer")).id,
        **_projects_and_people(house),
        **_key_and_request(house, now),
        **_webhook(house, now),
        **_money(house, double, now),
    }


def _projects_and_people(house: House) -> dict[str, str]:
    archived = create_project(actor=house.actor, organization=house.organization, name="Old")
    archive_project(actor=house.actor, project=archived)
    invitation, _ = invite_member(
        actor=house.actor, organization=house.organization, email="x@example.com", role="viewer"
    )
    return {"archived_id": archived.id, "invitation_id": invitation.id}


def _key_and_request(house: House, now: datetime) -> dict[str, str]:
    key, _ = house.mint(networks=["10.0.0.0/8"])
    key, _ = rotate_key(actor=house.actor, key=key, last_four=key.last_four)
    price = make_catalog()["bf16"]
    event = make_request(key, price, now)
    ingest(make_batch([event]), now=now)
    return {
        "key_id": key.id,
        "last_four": key.last_four,
        "model": price.variant.model_id,
        "request_id": event.event_id,
    }


def _webhook(house: House, now: datetime) -> dict[str, str]:
    endpoint, _ = create_endpoint(
        actor=house.actor, organization=house.organization,
        url="https://1.1.1.1/hook", kinds=["key.created"],
    )  # fmt: skip
    delivery = send_test(actor=house.actor, endpoint=endpoint, now=now)
    return {"endpoint_id": endpoint.id, "delivery_id": delivery.id}


def _money(house: House, double: StripeDouble, now: datetime) -> dict[str, str]:
    budget = add_limit(
        actor=house.actor, organization=house.organization, owner_id=house.id,
        period="month", limit_nanos=10**9, is_hard=False, now=now,
    )  # fmt: skip
    Alert.objects.create(
        organization_id=house.id, kind=AlertKind.values[0], budget_id=budget.budget_id, rule="80",
        starts_at=now, created_at=now, figures={},
    )  # fmt: skip
    method = save_card(house, double)
    set_auto_top_up(organization=house.organization, actor=house.actor, now=now, **AUTO_TOP_UP)
    top_up = ask_top_up(house, method=method)
    return {"budget_id": budget.budget_id, "method_id": method.id, "top_up_id": top_up.id}
