"""The end of deployments and variants: what stays, what may go, and what is refused twice."""

import pytest
from django.test import Client
from django.utils import timezone

from billing.economics.models import EngineLife
from billing.metering.models import Origin, Supply
from control.admin.base import row_url
from control.audit.models import AuditEvent
from control.catalog import retirement, selectors, services
from control.catalog.fleet_status import FleetStatus
from control.catalog.models import Deployment, DeploymentState, ReplicaFailure, Variant
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.selectors import last_record
from control.pricing import services as pricing
from tests.fixtures.operator_tokens import make_operator
from tests.fixtures.organizations import (
    OPERATOR,
    SeededOrganization,
    make_deployment,
    make_model,
    make_variant,
    quality_report,
)


@pytest.fixture
def variant(db: None) -> Variant:
    return make_variant(make_model())


@pytest.fixture
def spare(variant: Variant) -> Variant:
    """A variant that was never published."""
    return make_variant(variant.model, "fp8", parent=variant)


def end(deployment: Deployment) -> Deployment:
    return retirement.end_deployment(actor=OPERATOR, deployment=deployment)


def actions(row: Deployment | Variant) -> set[str]:
    return set(AuditEvent.objects.filter(target_id=row.pk).values_list("action", flat=True))


def test_an_ended_deployment_is_forgotten_and_never_starts_again(variant: Variant) -> None:
    deployment = make_deployment(variant)
    assert last_record("deployment", deployment.id) is not None
    deployment = end(deployment)
    assert last_record("deployment", deployment.id) is None
    assert deployment.state(FleetStatus()) == DeploymentState.ENDED
    changes = {"replicas_min": 1}
    with pytest.raises(Conflict, match="ended"):
        services.update_deployment(actor=OPERATOR, deployment=deployment, changes=changes)
    services.update_variant(actor=OPERATOR, variant=variant, changes={"capabilities": ["x"]})
    assert last_record("deployment", deployment.id) is None
    assert actions(deployment) == {"deployment.created", "deployment.ended"}


def test_a_deployment_that_is_to_run_is_not_ended(variant: Variant) -> None:
    deployment = make_deployment(variant, replicas_min=1)
    with pytest.raises(Conflict, match="Stop it first") as caught:
        end(deployment)
    assert caught.value.param == "replicas_min"


def test_a_deployment_is_deleted_with_its_failures_once_it_has_ended(variant: Variant) -> None:
    deployment = make_deployment(variant)
    ReplicaFailure.objects.create(
        replica_id="r", deployment=deployment, reason="no memory", started_at=timezone.now(),
        noticed_at=timezone.now(),
    )  # fmt: skip
    with pytest.raises(Conflict, match="End it first"):
        retirement.delete_deployment(actor=OPERATOR, deployment=deployment)
    retirement.delete_deployment(actor=OPERATOR, deployment=end(deployment))
    assert not Deployment.objects.exists()
    assert "deployment.deleted" in actions(deployment)


@pytest.mark.parametrize("kind", ["usage", "figures"])
def test_a_deployment_that_served_stays(variant: Variant, kind: str) -> None:
    deployment = end(make_deployment(variant))
    if kind == "usage":
        Origin.objects.create(gateway_id="gw", deployment_id=deployment.id, replica_id="r")
    else:
        EngineLife.objects.create(
            replica_id="r", deployment_id=deployment.id, fleet_id="f", started_at=timezone.now()
        )
    with pytest.raises(Conflict, match="stays for the record") as caught:
        retirement.delete_deployment(actor=OPERATOR, deployment=deployment)
    assert caught.value.code == "referenced"
    assert Deployment.objects.filter(id=deployment.id).exists()


def test_an_archived_variant_frees_its_precision(spare: Variant) -> None:
    deployment = make_deployment(spare)
    with pytest.raises(Conflict, match="End them first"):
        retirement.archive_variant(actor=OPERATOR, variant=spare)
    end(deployment)
    archived = retirement.archive_variant(actor=OPERATOR, variant=spare)
    assert archived.is_archived
    with pytest.raises(Conflict, match="archived"):
        make_deployment(archived)
    services.record_quality(actor=OPERATOR, variant=archived, document=quality_report())
    with pytest.raises(Conflict, match="archived"):
        services.publish_variant(actor=OPERATOR, variant=archived, override_reason="x")
    successor = make_variant(spare.model, "fp8", parent=spare.parent)
    assert selectors.variant_of(spare.model, "fp8") == successor
    assert "variant.archived" in actions(archived)


def test_a_published_variant_is_neither_archived_nor_deleted(variant: Variant) -> None:
    for verb in (retirement.archive_variant, retirement.delete_variant):
        with pytest.raises(Conflict, match="Withdraw it first"):
            verb(actor=OPERATOR, variant=variant)


def test_a_variant_that_nothing_refers_to_is_deleted_with_its_reports(spare: Variant) -> None:
    services.record_quality(actor=OPERATOR, variant=spare, document=quality_report())
    retirement.delete_variant(actor=OPERATOR, variant=spare)
    assert not Variant.objects.filter(id=spare.id).exists()
    assert "variant.deleted" in actions(spare)


@pytest.mark.parametrize("kind", ["deployment", "price", "quantized", "usage"])
def test_a_variant_that_something_refers_to_stays(spare: Variant, kind: str) -> None:
    if kind == "deployment":
        end(make_deployment(spare))
    elif kind == "price":
        book = pricing.draft_book(actor=OPERATOR, name="Draft")
        pricing.set_price(
            actor=OPERATOR, book=book, variant=spare, input_nanos=1, cached_input_nanos=1,
            output_nanos=1,
        )  # fmt: skip
    elif kind == "quantized":
        make_variant(spare.model, "int4", parent=spare)
    else:
        Supply.objects.create(
            model_id=spare.model_id, variant_id=spare.id, price_id="p", endpoint="chat", tier="flex"
        )
    with pytest.raises(Conflict) as caught:
        retirement.delete_variant(actor=OPERATOR, variant=spare)
    assert caught.value.code == "referenced"
    assert Variant.objects.filter(id=spare.id).exists()


def test_customers_end_nothing(org: SeededOrganization, spare: Variant) -> None:
    deployment = make_deployment(spare)
    for verb in (retirement.end_deployment, retirement.delete_deployment):
        with pytest.raises(NotPermitted):
            verb(actor=org.actor, deployment=deployment)
    for verb in (retirement.archive_variant, retirement.delete_variant):
        with pytest.raises(NotPermitted):
            verb(actor=org.actor, variant=spare)


def test_the_same_variant_is_not_added_twice(variant: Variant) -> None:
    with pytest.raises(InvalidValue, match="same weights") as caught:
        make_variant(variant.model, "other", weights=variant.weights)
    assert (caught.value.param, caught.value.code) == ("weights", "duplicate")
    make_variant(variant.model, "fp8", weights=variant.weights, engine_arguments=["--x"])


def test_the_same_deployment_is_not_added_twice(variant: Variant, org: SeededOrganization) -> None:
    first = make_deployment(variant)
    with pytest.raises(InvalidValue, match="replicas_min") as caught:
        make_deployment(variant, replicas_min=2, replicas_max=2)
    assert (caught.value.param, caught.value.code) == ("variant", "duplicate")
    second = make_deployment(variant, dedicated_to=org.organization)
    changes = {"dedicated_to": None}
    with pytest.raises(InvalidValue, match="replicas_min"):
        services.update_deployment(actor=OPERATOR, deployment=second, changes=changes)
    end(first)
    services.update_deployment(actor=OPERATOR, deployment=second, changes=changes)


SERVER = {"engine": "external", "engine_arguments": ["cache_salt"]}


def test_a_server_serves_one_deployment(variant: Variant, spare: Variant) -> None:
    first = make_deployment(variant, external_urls=["http://10.0.0.31:8000"], **SERVER)
    for urls in (["http://10.0.0.31:8000/"], ["http://10.0.0.9:1", "http://10.0.0.9:1"]):
        with pytest.raises(InvalidValue, match="listed already") as caught:
            make_deployment(spare, external_urls=urls, **SERVER)
        assert caught.value.param == "external_urls"
    end(first)
    make_deployment(spare, external_urls=["http://10.0.0.31:8000"], **SERVER)


def test_the_admin_ends_and_deletes(spare: Variant) -> None:
    deployment, browser = make_deployment(spare), Client()
    browser.force_login(make_operator("catalog"))
    for row, name in ((deployment, "deployment"), (spare, "variant")):
        verbs = ("end", "remove") if name == "deployment" else ("archive", "remove")
        for verb in verbs:
            url = row_url(f"admin:catalog_{name}_{verb}", row.pk)
            assert browser.get(url).status_code == 200
            assert browser.post(url, {"csrfmiddlewaretoken": "any"}).status_code == 302
    assert not Deployment.objects.exists()
    assert not Variant.objects.filter(id=spare.id).exists()
