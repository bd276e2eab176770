"""A variant is published only with weights, price, report where quantized, running deployment."""

from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from control.accounts.models import User
from control.admin.base import row_url
from control.audit.models import AuditEvent
from control.catalog import publication, services
from control.catalog.fleet_status import FleetStatus
from control.catalog.models import Deployment, Variant
from control.catalog.publication import RequirementsMissing
from control.organizations.models import Organization
from control.pricing import services as pricing
from serving.contract.replica import ReplicaRecord, State
from tests.fixtures.operator_tokens import METERS, bearer_client, make_operator, make_token
from tests.fixtures.organizations import (
    OPERATOR,
    make_deployment,
    make_model,
    make_organization,
    make_variant,
    quality_report,
)

NEEDS = ("weights", "quality_report", "price", "deployment")
REASON = "Announced for today"


@dataclass
class Fleet:
    """What the fleet reports."""

    state: State | None = None
    is_down: bool = False
    deployment_id: str = ""

    def status(self) -> FleetStatus:
        if self.state is None or self.is_down:
            return FleetStatus(is_down=self.is_down)
        replica = ReplicaRecord(
            "rep_1", self.deployment_id, "http://h", self.state, 8, timezone.now(), "simulated"
        )
        return FleetStatus((replica,))


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    fleet = Fleet()
    monkeypatch.setattr(publication, "fleet_status", fleet.status)
    return fleet


@pytest.fixture
def variant(db: None) -> Variant:
    """A quantized variant with nothing but weights."""
    parent = make_variant(make_model())
    return make_variant(parent.model, "int8", parent=parent)


def price(variant: Variant, organization: Organization | None = None) -> None:
    book = pricing.draft_book(actor=OPERATOR, name="Prices", organization=organization)
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    pricing.publish_book(actor=OPERATOR, book=book)


def furnish(variant: Variant, fleet: Fleet, *, without: str = "") -> None:
    """Give a variant all that it needs, but one thing."""
    if without != "quality_report":
        services.record_quality(actor=OPERATOR, variant=variant, document=quality_report())
    if without != "price":
        price(variant)
    if without != "deployment":
        fleet.state, fleet.deployment_id = "ready", make_deployment(variant).id
    if without == "weights":
        Variant.objects.filter(id=variant.id).update(weights=" ")
        variant.refresh_from_db()


def publish(variant: Variant, reason: str = "") -> Variant:
    return services.publish_variant(actor=OPERATOR, variant=variant, override_reason=reason)


def test_a_variant_with_all_that_it_needs_is_published(variant: Variant, fleet: Fleet) -> None:
    furnish(variant, fleet)
    assert publish(variant).published_at is not None
    event = AuditEvent.objects.get(action="variant.published", target_id=variant.id)
    assert "override_reason" not in event.details


@pytest.mark.parametrize("need", NEEDS)
def test_each_need_is_named_and_only_some_are_waived(
    variant: Variant, fleet: Fleet, need: str
) -> None:
    furnish(variant, fleet, without=need)
    with pytest.raises(RequirementsMissing) as refusal:
        publish(variant)
    assert [each.code for each in refusal.value.missing] == [need]
    assert (refusal.value.code, refusal.value.param) == ("requirements_missing", need)
    is_waivable = need in ("price", "deployment")
    assert ("override_reason" in refusal.value.message) is is_waivable
    if not is_waivable:
        with pytest.raises(RequirementsMissing):
            publish(variant, REASON)
        return
    with pytest.raises(RequirementsMissing):
        publish(variant, " ")
    assert publish(variant, REASON).published_at is not None
    event = AuditEvent.objects.get(action="variant.published", target_id=variant.id)
    assert (event.details["missing"], event.details["override_reason"]) == ([need], REASON)


STATES: list[tuple[State | None, bool, str]] = [
    ("ready", True, ""), ("asleep", True, ""),
    ("loading", False, "1 loading"), ("failed", False, "1 failed"), ("draining", False, "draining"),
    (None, False, "replicas: none"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "is_published", "words"), STATES)
def test_only_a_replica_that_answers_counts(
    variant: Variant, fleet: Fleet, state: State | None, is_published: bool, words: str
) -> None:
    furnish(variant, fleet)
    fleet.state = state
    if is_published:
        publish(variant)
        return
    with pytest.raises(RequirementsMissing, match=words):
        publish(variant)


def test_a_fleet_that_is_away_is_named(variant: Variant, fleet: Fleet) -> None:
    furnish(variant, fleet)
    fleet.is_down = True
    with pytest.raises(RequirementsMissing, match="the fleet does not respond"):
        publish(variant)


def test_a_price_counts_while_it_is_in_force(variant: Variant, fleet: Fleet) -> None:
    furnish(variant, fleet, without="price")
    book = pricing.draft_book(actor=OPERATOR, name="Next year")
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    now = timezone.now()
    pricing.publish_book(
        actor=OPERATOR, book=book, effective_at=now.replace(year=now.year + 1, day=1)
    )
    with pytest.raises(RequirementsMissing, match="no price in force"):
        publish(variant)


CUSTOMERS: list[tuple[str | None, str, str, list[str]]] = [
    # open to these customers (None: all), whose contract, whose deployment, what is missing
    (None, "", "", []), (None, "A", "A", ["price", "deployment"]), ("A", "A", "A", []),
    ("A", "B", "B", ["price", "deployment"]), ("AB", "A", "A", ["price", "deployment"]),
    ("AB", "", "", []), ("AB", "", "A", ["deployment"]),
]  # fmt: skip


@pytest.mark.parametrize("case", CUSTOMERS)
def test_price_and_deployment_are_for_all_who_may_use_it(
    variant: Variant, fleet: Fleet, case: tuple[str | None, str, str, list[str]]
) -> None:
    open_to, contract, dedicated, missing = case
    customers = {name: make_organization(name).organization for name in "AB"}
    services.record_quality(actor=OPERATOR, variant=variant, document=quality_report())
    price(variant, customers.get(contract))
    deployment = make_deployment(variant, dedicated_to=customers.get(dedicated))
    fleet.state, fleet.deployment_id = "ready", deployment.id
    variant.model.organization_ids = open_to and [customers[name].id for name in open_to]
    assert [each.code for each in publication.missing_requirements(variant)] == missing


@pytest.mark.parametrize("need", ["", *NEEDS])
def test_the_admins_page_links_to_each_need(
    client: Client, variant: Variant, fleet: Fleet, need: str
) -> None:
    client.force_login(User.objects.create_superuser("operator@example.com"))
    furnish(variant, fleet, without=need)
    address = row_url("admin:catalog_variant_publish", variant.id)
    rows = client.get(address).context["table"]["rows"]
    assert len(rows) == len(NEEDS)
    assert [status == "ready" for _, status, _ in rows] == [each != need for each in NEEDS]
    for _, _, link in rows:
        assert client.get(link.split('href="')[1].split('"')[0]).status_code == 200
    done = client.post(address, {"override_reason": ""})
    assert done.status_code == (200 if need else 302)
    waived = client.post(address, {"override_reason": REASON})
    variant.refresh_from_db()
    assert (variant.published_at is None) is (need in ("weights", "quality_report"))
    assert waived.status_code in (200, 302, 403)


def test_a_deployments_form_begins_with_the_variant(client: Client, variant: Variant) -> None:
    client.force_login(User.objects.create_superuser("operator@example.com"))
    page = client.get(row_url("admin:catalog_variant_publish", variant.id)).content.decode()
    assert f"/catalog/deployment/add/?variant={variant.id}" in page
    assert not Deployment.objects.exists()


@pytest.mark.parametrize("need", NEEDS)
def test_the_api_lists_and_names_what_is_missing(variant: Variant, fleet: Fleet, need: str) -> None:
    furnish(variant, fleet, without=need)
    script = bearer_client(make_token(make_operator())[1])
    address = f"/api/v1/admin/variants/{variant.id}/publish"
    listed: list[dict[str, Any]] = script.get(address).json()["requirements"]
    assert {each["code"]: each["is_met"] for each in listed} == {
        each: each != need for each in NEEDS
    }
    refused = script.post(address, {}, content_type="application/json")
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (
        409, "requirements_missing", need,
    )  # fmt: skip
    body = {"override_reason": REASON}
    waived = script.post(address, body, content_type="application/json")
    assert waived.status_code == (200 if need in ("price", "deployment") else 409)


def test_the_api_records_the_report_that_a_quantized_variant_needs(
    variant: Variant, fleet: Fleet
) -> None:
    furnish(variant, fleet, without="quality_report")
    operator = make_operator()
    script = bearer_client(make_token(operator)[1])
    address = f"/api/v1/admin/variants/{variant.id}/quality-reports"

    def record(document: Any) -> Any:
        return script.post(address, {"document": document}, content_type="application/json")

    score = quality_report()["accuracy"]["overall"]
    for wrong in (
        "good",
        {"accuracy": {"overall": score | {"share": 1.5}}},
        quality_report() | {"note": "\0"},
    ):
        refused = record(wrong)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "document")
    report = record(quality_report()).json()
    assert (report["variant_id"], report["accuracy"]) == (variant.id, 0.9)
    assert publish(variant).published_at is not None
    event = AuditEvent.objects.get(action="variant.quality_recorded", target_id=variant.id)
    assert event.actor_id == operator.id
