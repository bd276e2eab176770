"""The catalog: what is published of models, variants and deployments."""

from types import SimpleNamespace

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from control.catalog import fleet_status, selectors, services
from control.catalog.fleet_status import FleetStatus
from control.catalog.models import Deployment, Variant
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.selectors import last_record
from control.pricing import services as pricing
from serving.contract.codec import decode
from serving.contract.records import DeploymentRecord, ModelRecord
from serving.contract.replica import ReplicaRecord
from tests.fixtures.organizations import (
    OPERATOR,
    SeededOrganization,
    make_deployment,
    make_model,
    make_variant,
    publish_ahead,
    quality_report,
)


@pytest.fixture
def variant(db: None) -> Variant:
    return make_variant(make_model())


@pytest.fixture
def quantized(variant: Variant) -> Variant:
    return make_variant(variant.model, "int8", parent=variant)


def published(variant: Variant) -> ModelRecord | None:
    record = last_record("model", variant.id)
    return decode(record.encode(), ModelRecord) if record else None


def deployed(deployment: Deployment) -> DeploymentRecord:
    record = last_record("deployment", deployment.id)
    assert record is not None
    return decode(record.encode(), DeploymentRecord)


def names(variant: Variant) -> tuple[str, ...]:
    record = published(variant)
    return (record.public_id, *record.aliases) if record else ()


def test_the_first_published_variant_has_the_models_own_name(variant: Variant) -> None:
    assert names(variant) == ("small", "small:bf16")


def test_a_quantized_variant_is_published_with_a_quality_report_only(quantized: Variant) -> None:
    with pytest.raises(Conflict, match="quality report"):
        services.publish_variant(actor=OPERATOR, variant=quantized)
    services.record_quality(actor=OPERATOR, variant=quantized, document=quality_report())
    publish_ahead(quantized)
    assert names(quantized) == ("small:int8",)


def test_another_default_takes_the_models_name_over(variant: Variant, quantized: Variant) -> None:
    services.record_quality(actor=OPERATOR, variant=quantized, document=quality_report())
    quantized = publish_ahead(quantized)
    services.set_default_variant(actor=OPERATOR, model=variant.model, variant=quantized)
    assert names(quantized) == ("small", "small:int8")
    assert names(variant) == ("small:bf16",)
    services.withdraw_variant(actor=OPERATOR, variant=variant)
    assert names(variant) == ()
    with pytest.raises(Conflict, match="default"):
        services.withdraw_variant(actor=OPERATOR, variant=quantized)


def test_an_unpublished_variant_is_no_default(variant: Variant, quantized: Variant) -> None:
    with pytest.raises(Conflict):
        services.set_default_variant(actor=OPERATOR, model=variant.model, variant=quantized)


def test_a_report_keeps_its_document_and_shows_its_figures(variant: Variant) -> None:
    document = quality_report(0.9) | {"note": "kept as it came"}
    report = services.record_quality(actor=OPERATOR, variant=variant, document=document)
    report.refresh_from_db()
    assert report.document == document
    assert (report.accuracy, report.question_count, report.perplexity) == (0.9, 300, 1.4)
    assert report.skills[0]["skill"] == "lists"


def test_what_is_no_report_is_refused(variant: Variant) -> None:
    with pytest.raises(InvalidValue, match="quality report"):
        services.record_quality(actor=OPERATOR, variant=variant, document={"accuracy": "good"})


DIGEST, OTHER_DIGEST = "0a" * 32, "0b" * 32
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_weights_never_change(variant: Variant) -> None:
    services.update_variant(
        actor=OPERATOR,
        variant=variant,
        changes={"weights": variant.weights, "weights_digest": DIGEST, "size_bytes": 5},
    )
    for field, value in (("weights", "/srv/other"), ("weights_digest", OTHER_DIGEST)):
        with pytest.raises(InvalidValue, match="add a new variant") as caught:
            services.update_variant(actor=OPERATOR, variant=variant, changes={field: value})
        assert (caught.value.param, caught.value.code) == (field, "immutable")
    variant.refresh_from_db()
    assert (variant.weights_digest, variant.size_bytes) == (DIGEST, 5)


def test_the_first_load_fixes_the_digest(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = make_deployment(variant, replicas_min=1)
    early = services.record_quality(actor=OPERATOR, variant=variant, document=quality_report())

    def load(digest: str) -> int:
        record = ReplicaRecord(
            replica_id="rep_1", deployment_id=deployment.id, url="http://r", state="ready", slots=1,
            started_at=timezone.now(), engine="vllm", weights_digest=digest,
        )  # fmt: skip
        monkeypatch.setattr(services, "fleet_status", lambda: FleetStatus((record,)))
        return services.note_weights()

    assert (load(DIGEST), load(OTHER_DIGEST)) == (1, 0)
    variant.refresh_from_db()
    early.refresh_from_db()
    assert (variant.weights_digest, early.weights_digest) == (DIGEST, DIGEST)
    assert variant.latest_report == early
    assert deployed(deployment).weights_digest == DIGEST


def test_a_report_of_other_weights_does_not_count(variant: Variant) -> None:
    of_others = quality_report() | {"weights_digest": OTHER_DIGEST}
    services.record_quality(actor=OPERATOR, variant=variant, document=of_others)
    changes = {"weights_digest": DIGEST}
    variant = services.update_variant(actor=OPERATOR, variant=variant, changes=changes)
    assert variant.latest_report is None
    with pytest.raises(InvalidValue, match="other weights"):
        services.record_quality(actor=OPERATOR, variant=variant, document=of_others)
    own = services.record_quality(actor=OPERATOR, variant=variant, document=quality_report())
    assert variant.latest_report == own


@pytest.mark.parametrize(
    ("weights", "advice"),
    [("owner/name@main", "git ls-remote"), ("https://example.com/w", "not supported"),
     ("s3://key:secret@bucket/w", "credentials")],
)  # fmt: skip
def test_weights_that_can_move_are_refused(db: None, weights: str, advice: str) -> None:
    with pytest.raises(InvalidValue, match=advice) as caught:
        make_variant(make_model(), weights=weights)
    assert caught.value.param == "weights"


@pytest.mark.parametrize(
    ("weights", "engine", "is_taken"),
    [("owner/name", "vllm", False), ("owner/name", "simulated", True),
     (f"owner/name@{COMMIT}", "vllm", True), ("gs://bucket/w", "vllm", True)],
)  # fmt: skip
def test_vllm_loads_only_what_is_pinned(
    db: None, weights: str, engine: str, is_taken: bool
) -> None:
    variant = make_variant(make_model(), weights=weights)
    if is_taken:
        assert deployed(make_deployment(variant, engine=engine)).weights == weights
        return
    with pytest.raises(InvalidValue, match="git ls-remote"):
        make_deployment(variant, engine=engine)


@pytest.mark.parametrize("argument", ["--trust-remote-code", "--revision=main", "--load_format"])
def test_no_argument_loads_other_weights(variant: Variant, argument: str) -> None:
    with pytest.raises(InvalidValue, match="set by the platform"):
        make_deployment(variant, engine_arguments=[argument, "x"])
    changes = {"engine_arguments": [argument]}
    with pytest.raises(InvalidValue, match="set by the platform"):
        services.update_variant(actor=OPERATOR, variant=variant, changes=changes)


def test_scaling_from_zero_publishes_the_deployment(variant: Variant) -> None:
    deployment = make_deployment(variant)
    assert deployed(deployment).replicas_min == 0
    services.scale_deployment(actor=OPERATOR, deployment=deployment, replicas_min=1, replicas_max=2)
    record = deployed(deployment)
    assert (record.replicas_min, record.replicas_max) == (1, 2)


def test_a_deployments_arguments_come_after_its_variants(variant: Variant) -> None:
    deployment = make_deployment(variant, engine_arguments=["--b"])
    services.update_variant(actor=OPERATOR, variant=variant, changes={"engine_arguments": ["--a"]})
    assert deployed(deployment).engine_arguments == ("--a", "--b")


def test_how_long_requests_wait_and_what_is_kept_free_is_published(variant: Variant) -> None:
    changes = {"queue_seconds": 5.0, "wake_seconds": 120.0, "reserved_share": 0.25}
    deployment = make_deployment(variant)
    services.update_deployment(actor=OPERATOR, deployment=deployment, changes=changes)
    record = deployed(deployment)
    assert (record.timeouts.queue_seconds, record.timeouts.wake_seconds) == (5.0, 120.0)
    assert record.reserved_share == 0.25


def test_when_a_deployment_sleeps_is_published(variant: Variant) -> None:
    deployment = make_deployment(variant, replicas_min=1)
    assert not deployed(deployment).may_sleep
    changes = {"sleep_after_seconds": 600.0, "wake_seconds": 90.0}
    services.update_deployment(actor=OPERATOR, deployment=deployment, changes=changes)
    assert deployed(deployment).sleep_after_seconds == 600.0
    assert deployed(deployment).may_sleep
    services.scale_deployment(actor=OPERATOR, deployment=deployment, replicas_min=0, replicas_max=1)
    assert not deployed(deployment).may_sleep, "stopped is not asleep"


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas_min": 2},
        {"reserved_share": 1.5},
        {"sleep_after_seconds": -1.0},
        {"sleep_after_seconds": 60.0},
        {"sleep_after_seconds": 60.0, "wake_seconds": 90.0, "engine": "external"},
        {"slots": 0},
        {"engine": "magic"},
        {"variant": None},
        {"replicas": 1},
    ],
)
def test_a_bad_deployment_is_refused_and_nothing_published(
    variant: Variant, changes: dict[str, object]
) -> None:
    deployment = make_deployment(variant)
    before = deployed(deployment)
    with pytest.raises(InvalidValue):
        services.update_deployment(actor=OPERATOR, deployment=deployment, changes=changes)
    assert deployed(deployment) == before


def test_customers_do_not_edit_the_catalog(org: SeededOrganization, variant: Variant) -> None:
    with pytest.raises(NotPermitted):
        services.update_model(actor=org.actor, model=variant.model, changes={"name": "Mine"})
    with pytest.raises(NotPermitted):
        services.create_deployment(actor=org.actor, variant=variant)


def test_a_private_model_is_seen_by_its_organizations_only(
    org: SeededOrganization, outsider: SeededOrganization, variant: Variant
) -> None:
    services.update_model(
        actor=OPERATOR, model=variant.model, changes={"organization_ids": [org.id]}
    )
    record = published(variant)
    assert record is not None
    assert record.organization_ids == (org.id,)
    assert list(selectors.models_for(org.organization)) == [variant.model]
    assert list(selectors.models_for(outsider.organization)) == []


def test_the_api_shows_prices_and_quality(
    api: APIClient, base: str, variant: Variant, quantized: Variant
) -> None:
    services.record_quality(actor=OPERATOR, variant=variant, document=quality_report())
    book = pricing.draft_book(actor=OPERATOR, name="Prices")
    meters = {
        "input_nanos": 150_000_000,
        "cached_input_nanos": 75_000_000,
        "output_nanos": 600_000_000,
    }
    pricing.set_price(actor=OPERATOR, book=book, variant=variant, **meters)
    pricing.publish_book(actor=OPERATOR, book=book)
    model = api.get(f"{base}/models").json()["data"][0]
    shown = model["variants"]
    assert [each["public_id"] for each in shown] == ["small:bf16"]
    assert shown[0]["price"].items() >= meters.items()
    assert shown[0]["quality"]["accuracy"] == 0.9
    assert api.get(f"{base}/models/small").json() == model
    assert api.get(f"{base}/models/{variant.model.id}").json() == model


def test_a_private_model_looks_missing_in_the_api(
    stranger: APIClient, org: SeededOrganization, outsider: SeededOrganization, variant: Variant
) -> None:
    services.update_model(
        actor=OPERATOR, model=variant.model, changes={"organization_ids": [org.id]}
    )
    base = f"/api/v1/organizations/{outsider.id}/models"
    assert stranger.get(base).json()["data"] == []
    assert stranger.get(f"{base}/small").status_code == 404


@pytest.mark.parametrize(
    ("declared", "is_dedicated", "is_taken"),
    [([], False, False), (["tools"], False, False), (["cache_salt"], False, True),
     (["tools", "no_prefix_cache"], False, True), ([], True, True)],
)  # fmt: skip
def test_a_server_of_others_that_keeps_nobody_apart_is_for_one_organization(
    org: SeededOrganization,
    variant: Variant,
    declared: list[str],
    is_dedicated: bool,
    is_taken: bool,
) -> None:
    deployment = make_deployment(variant)
    changes = {
        "engine": "external",
        "engine_arguments": declared,
        "dedicated_to": org.organization if is_dedicated else None,
    }
    if is_taken:
        services.update_deployment(actor=OPERATOR, deployment=deployment, changes=changes)
        assert deployed(deployment).engine == "external"
        return
    with pytest.raises(InvalidValue, match="cache_salt or no_prefix_cache") as caught:
        services.update_deployment(actor=OPERATOR, deployment=deployment, changes=changes)
    assert caught.value.param == "engine_arguments"


@pytest.mark.django_db
def test_a_model_for_embeddings_is_published_with_the_length_of_its_vectors() -> None:
    model = services.create_model(actor=OPERATOR, public_id="vec", name="Vec", task="embed")
    variant = make_variant(model, dimensions=256)
    record, deployment = published(variant), deployed(make_deployment(variant))
    assert record is not None
    assert (record.task, record.dimensions) == ("embed", 256)
    assert deployment.task == "embed"


@pytest.mark.django_db
def test_only_a_model_for_embeddings_has_vectors() -> None:
    embedder = services.create_model(actor=OPERATOR, public_id="vec", name="Vec", task="embed")
    for model, dimensions in ((embedder, None), (make_model(), 256), (embedder, 0)):
        with pytest.raises(InvalidValue, match="dimensions"):
            make_variant(model, dimensions=dimensions)
    with pytest.raises(InvalidValue, match="task"):
        services.update_model(actor=OPERATOR, model=embedder, changes={"task": "generate"})


@pytest.mark.parametrize(
    ("fleet", "kept_seconds"), [(FleetStatus(), 1), (FleetStatus(is_down=True), 5)]
)
def test_a_slow_fleet_is_asked_once_for_a_list(
    monkeypatch: pytest.MonkeyPatch, fleet: FleetStatus, kept_seconds: int
) -> None:
    clock = iter([50, 51, 51, 51 + kept_seconds - 0.1, 51 + kept_seconds, 60])
    polls: list[FleetStatus] = []
    monkeypatch.setattr(fleet_status, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(fleet_status, "_poll", lambda: polls.append(fleet) or fleet)
    fleet_status.cache.clear()
    for count in (1, 1, 1, 2):
        assert fleet_status.fleet_status() == fleet
        assert len(polls) == count
    fleet_status.cache.clear()
