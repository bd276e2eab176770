"""Changes to the catalog: those of operators, one transaction each and published at once, and what
the fleet says of replicas that failed, which it forgets within minutes."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import chain
from typing import Annotated, Any

import msgspec
import structlog
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from control.alarms.count import OPERATOR, raise_alarm_on_commit
from control.audit import services as audit
from control.catalog import selectors
from control.catalog.external_servers import check_unique
from control.catalog.feed import deployment_record, model_record
from control.catalog.fleet_status import fleet_status
from control.catalog.models import (
    FAILURE_REASON_MAX,
    Deployment,
    Engine,
    Model,
    QualityReport,
    ReplicaFailure,
    Task,
    Variant,
)
from control.catalog.plans import require_rollout
from control.catalog.publication import missing_requirements, require_publishable
from control.db.row_changes import apply_changes, create_row, snapshot
from control.errors import Conflict, InvalidValue
from control.feed.services import publish
from control.permissions import Actor, Permission, require_operator
from serving.contract.codec import storable
from serving.contract.units import Digest
from serving.contract.weights import how_to_pin, weights_source

MODEL_FIELDS = frozenset({"name", "description", "organization_ids"})
CREATED_MODEL_FIELDS = MODEL_FIELDS | {"public_id", "task"}
VARIANT_FIELDS = frozenset(
    {
        "weights", "weights_digest", "engine_arguments", "capabilities", "context_tokens",
        "output_tokens_max", "vocabulary_size", "dimensions", "parameter_count", "size_bytes",
        "accelerator", "tensor_parallel_size", "pipeline_parallel_size",
    }
)  # fmt: skip
CREATED_VARIANT_FIELDS = VARIANT_FIELDS | {"model", "precision", "parent"}
DEPLOYMENT_FIELDS = frozenset(
    {
        "engine", "replicas_min", "replicas_max", "slots", "engine_arguments", "external_urls",
        "dedicated_to", "connect_seconds", "first_byte_seconds", "gap_seconds", "total_seconds",
        "queue_seconds", "wake_seconds", "sleep_after_seconds", "reserved_share",
        "hourly_cost_nanos",
    }
)  # fmt: skip
CREATED_DEPLOYMENT_FIELDS = DEPLOYMENT_FIELDS | {"fleet"}
IDENTITY = frozenset({"engine", "engine_arguments", "slots", "external_urls", "dedicated_to"})
"""The fields in which a fleet's deployments of a variant must differ."""
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
NOT_PUBLISHED = frozenset({"hourly_cost_nanos"})
"""Fields of a deployment that the data plane does not get."""
FAILURES_KEPT = timedelta(days=90)

logger = structlog.get_logger(__name__)


@transaction.atomic
def create_model(
    *,
    actor: Actor,
    public_id: str,
    name: str,
    description: str = "",
    task: str = Task.GENERATE,
    organization_ids: list[str] | None = None,
) -> Model:
    """Add a model; customers cannot use it before it has a published variant."""
    require_operator(actor, Permission.CATALOG_WRITE)
    model = Model(
        public_id=public_id,
        name=name,
        description=description,
        task=task,
        organization_ids=organization_ids,
    )
    create_row(model)
    audit.record_about(actor, "model.created", model, **snapshot(model, CREATED_MODEL_FIELDS))
    return model


@transaction.atomic
def update_model(*, actor: Actor, model: Model, changes: Mapping[str, Any]) -> Model:
    """Change MODEL_FIELDS of a model, and its `default_variant` as `set_default_variant` does. Its
    public id and its task never change."""
    require_operator(actor, Permission.CATALOG_WRITE)
    fields = {name: value for name, value in changes.items() if name != "default_variant"}
    _require_fields(fields, MODEL_FIELDS)
    model = selectors.locked_model(model.id)
    if differences := apply_changes(model, fields):
        audit.record_about(actor, "model.updated", model, **differences)
        publish(model_record(variant) for variant in selectors.variants(model))
    if (variant := changes.get("default_variant")) is not None:
        model = set_default_variant(actor=actor, model=model, variant=variant)
    return model


@transaction.atomic
def set_default_variant(*, actor: Actor, model: Model, variant: Variant) -> Model:
    """Make another published variant the one that the model's own name means. Raises Conflict for
    an unpublished variant or another model's."""
    require_operator(actor, Permission.CATALOG_WRITE)
    model = selectors.locked_model(model.id)
    variant = selectors.locked_variant(variant.id)
    if variant.model_id != model.id or variant.published_at is None:
        raise Conflict(f"{variant} is not a published variant of {model}.", param="default_variant")
    if differences := apply_changes(model, {"default_variant": variant}):
        audit.record_about(actor, "model.default_variant_set", model, **differences)
        publish(model_record(each) for each in selectors.variants(model))
    return model


@transaction.atomic
def create_variant(*, actor: Actor, model: Model, precision: str, **fields: Any) -> Variant:
    """Add a variant with some of VARIANT_FIELDS and a `parent`, unpublished."""
    require_operator(actor, Permission.CATALOG_WRITE)
    _require_fields(fields, VARIANT_FIELDS | {"parent"})
    variant = Variant(model=model, precision=precision, **fields)
    _require_new_variant(variant)
    create_row(variant)
    audit.record_about(
        actor, "variant.created", variant, **snapshot(variant, CREATED_VARIANT_FIELDS)
    )
    return variant


def _require_new_variant(variant: Variant) -> None:
    """Raise InvalidValue where the model has such a variant under another precision."""
    same = Variant.objects.filter(
        model=variant.model, weights=variant.weights, weights_digest=variant.weights_digest,
        engine_arguments=variant.engine_arguments, accelerator=variant.accelerator,
        tensor_parallel_size=variant.tensor_parallel_size,
        pipeline_parallel_size=variant.pipeline_parallel_size, archived_at__isnull=True,
    ).exclude(precision=variant.precision).first()  # fmt: skip
    if same is not None:
        words = f"weights: {same} has the same weights, engine arguments and resources."
        raise InvalidValue(words, param="weights", code="duplicate")


@transaction.atomic
def update_variant(*, actor: Actor, variant: Variant, changes: Mapping[str, Any]) -> Variant:
    """Change VARIANT_FIELDS of a variant and republish its deployments.

    Raises InvalidValue for other weights than it has. A digest may be set while there is none.
    """
    require_operator(actor, Permission.CATALOG_WRITE)
    _require_fields(changes, VARIANT_FIELDS)
    for deployment in selectors.live_deployments(variant):
        require_rollout(deployment, variant, changes)
    variant = selectors.locked_variant(variant.id)
    for field in ("weights", "weights_digest"):
        fixed = getattr(variant, field)
        if fixed and changes.get(field, fixed) != fixed:
            words = f"{field} of a variant never changes: add a new variant for other weights."
            raise InvalidValue(words, param=field, code="immutable")
    if digest := changes.get("weights_digest"):
        _bind_reports(variant, digest)
    if differences := apply_changes(variant, changes):
        audit.record_about(actor, "variant.updated", variant, **differences)
        deployments = selectors.live_deployments(variant)
        publish([model_record(variant), *(deployment_record(each) for each in deployments)])
    return variant


def _bind_reports(variant: Variant, digest: str) -> None:
    """Let reports that named no weights be of those that the variant turns out to have."""
    variant.quality_reports.filter(weights_digest="").update(weights_digest=digest)


@transaction.atomic
def record_quality(*, actor: Actor, variant: Variant, document: dict[str, Any]) -> QualityReport:
    """Store a quality report of a variant; the newest counts.

    Raises InvalidValue for an invalid report, and for one whose `weights_digest` is not the
    variant's.
    """
    require_operator(actor, Permission.CATALOG_WRITE)
    columns = quality_columns(document)
    variant = selectors.locked_variant(variant.id)
    evaluated = columns["weights_digest"] or variant.weights_digest
    if variant.weights_digest and evaluated != variant.weights_digest:
        raise InvalidValue(
            f"quality report: it is of other weights ({evaluated}) than {variant} has"
            f" ({variant.weights_digest}).",
            param="document",
        )
    columns["weights_digest"] = evaluated
    report = QualityReport(variant=variant, document=document, **columns)
    create_row(report)
    audit.record_about(
        actor, "variant.quality_recorded", variant,
        report=report.id, accuracy=report.accuracy, weights_digest=evaluated,
    )  # fmt: skip
    return report


@transaction.atomic
def publish_variant(*, actor: Actor, variant: Variant, override_reason: str = "") -> Variant:
    """Open a variant to customers; the first of a model becomes its default.

    Raises RequirementsMissing where it lacks weights, a quality report although it is quantized, a
    price or a running deployment; a reason, which the audit log keeps, waives the latter two.
    """
    require_operator(actor, Permission.CATALOG_WRITE)
    missing = missing_requirements(variant)  # asks the fleet: before rows are locked
    model = selectors.locked_model(variant.model_id)
    variant = selectors.locked_variant(variant.id)
    if variant.published_at is not None:
        return variant
    _require_not_archived(variant)
    require_publishable(variant, missing, override_reason)
    apply_changes(variant, {"published_at": timezone.now()})
    if model.default_variant_id is None:
        apply_changes(model, {"default_variant": variant})
    variant.model = model
    waived = [each.code for each in missing]
    details = {"missing": waived, "override_reason": override_reason} if waived else {}
    digest = variant.weights_digest
    audit.record_about(actor, "variant.published", variant, weights_digest=digest, **details)
    publish([model_record(variant)])
    return variant


@transaction.atomic
def withdraw_variant(*, actor: Actor, variant: Variant) -> Variant:
    """Remove a variant from the customers' list. Raises Conflict for a model's default."""
    require_operator(actor, Permission.CATALOG_WRITE)
    selectors.locked_model(variant.model_id)
    variant = selectors.locked_variant(variant.id)
    if variant.is_default:
        raise Conflict(f"{variant} is the default variant. Choose another default first.")
    if apply_changes(variant, {"published_at": None}):
        audit.record_about(actor, "variant.withdrawn", variant)
        publish([model_record(variant)])
    return variant


@transaction.atomic
def create_deployment(*, actor: Actor, variant: Variant, **fields: Any) -> Deployment:
    """Add a deployment with some of DEPLOYMENT_FIELDS to a `fleet`, the default one if none is
    given; the fleet starts `replicas_min`."""
    require_operator(actor, Permission.CATALOG_WRITE)
    _require_fields(fields, CREATED_DEPLOYMENT_FIELDS)
    variant = selectors.locked_variant(variant.id)
    _require_not_archived(variant)
    deployment = Deployment(variant=variant, **fields)
    _require_loadable(deployment)
    _require_new_deployment(deployment)
    create_row(deployment)
    values = snapshot(deployment, CREATED_DEPLOYMENT_FIELDS | {"variant"})
    audit.record_about(actor, "deployment.created", deployment, **values)
    publish([deployment_record(deployment)])
    return deployment


@transaction.atomic
def update_deployment(
    *, actor: Actor, deployment: Deployment, changes: Mapping[str, Any]
) -> Deployment:
    """Change DEPLOYMENT_FIELDS of a deployment; the fleet and the gateways apply them.

    A new hourly cost applies from now on: usage that engines counted before keeps the old cost.
    """
    require_operator(actor, Permission.CATALOG_WRITE)
    _require_fields(changes, DEPLOYMENT_FIELDS)
    require_rollout(deployment, deployment, changes)
    deployment = selectors.locked_deployment(deployment.id)
    if deployment.is_ended:
        raise Conflict(f"{deployment} has ended. Add another deployment.")
    was_engine = deployment.engine
    if differences := apply_changes(deployment, changes):
        if deployment.engine != was_engine:
            _require_loadable(deployment)
        if changes.keys() & IDENTITY:
            _require_new_deployment(deployment)
        audit.record_about(actor, "deployment.updated", deployment, **differences)
        if not differences["after"].keys() <= NOT_PUBLISHED:
            publish([deployment_record(deployment)])
    return deployment


def _require_not_archived(variant: Variant) -> None:
    if variant.is_archived:
        raise Conflict(f"{variant} is archived. Add another variant.", param="variant")


def _require_new_deployment(deployment: Deployment) -> None:
    """Raise InvalidValue for a deployment that differs from another in nothing, or names one of its
    servers. Replicas are added to a deployment by `replicas_min`."""
    others = selectors.live_deployments().exclude(id=deployment.id)
    same = {name: getattr(deployment, name) for name in IDENTITY}
    own = others.filter(variant=deployment.variant, fleet=deployment.fleet_id)
    if own.filter(**same).exists():
        raise InvalidValue(
            f"variant: {deployment} is deployed with the same engine, arguments, slots and"
            " customer. Raise its replicas_min for more replicas.",
            param="variant",
            code="duplicate",
        )
    taken = others.filter(engine=Engine.EXTERNAL).values_list("external_urls", flat=True)
    try:
        check_unique(deployment.external_urls, chain.from_iterable(taken))
    except ValidationError as error:
        words = f"external_urls: {error.messages[0]}"
        raise InvalidValue(words, param="external_urls", code="duplicate") from error


def _require_loadable(deployment: Deployment) -> None:
    """Raise InvalidValue where vLLM is to load what is no pinned source of weights."""
    source = weights_source(deployment.variant.weights)
    if deployment.engine == Engine.VLLM and not source.is_loadable:
        raise InvalidValue(
            f"vLLM cannot load “{source.location}”: it is neither a folder nor a URL, and a Hugging"
            f" Face ID has no commit. {how_to_pin(source.location)} Add a variant with it.",
            param="engine",
        )


def scale_deployment(
    *, actor: Actor, deployment: Deployment, replicas_min: int, replicas_max: int
) -> Deployment:
    """Set how many replicas the fleet keeps; a `replicas_min` of 0 stops the deployment."""
    changes = {"replicas_min": replicas_min, "replicas_max": replicas_max}
    return update_deployment(actor=actor, deployment=deployment, changes=changes)


def _require_fields(changes: Mapping[str, Any], fields: frozenset[str]) -> None:
    for field in changes:
        if field not in fields:
            raise InvalidValue(f"{field} cannot be set.", param=field, code="unknown_parameter")


class QualityScore(msgspec.Struct, frozen=True):
    """A share of correct answers with its 95 % interval."""

    right: Count
    asked: Count
    share: Share
    low: Share
    high: Share


class SkillAccuracy(msgspec.Struct, frozen=True):
    """The score over all questions and by skill."""

    overall: QualityScore
    by_skill: dict[str, QualityScore] = {}


class QualityDocument(msgspec.Struct, frozen=True):
    """The part of a report that the catalog shows; the rest is stored unchanged."""

    accuracy: SkillAccuracy
    weights_digest: Digest | None = None
    perplexity: float | None = None
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    output_tokens_per_second: float | None = None


def quality_columns(document: dict[str, Any]) -> dict[str, Any]:
    """Return a report's columns. Raises InvalidValue for an invalid report."""
    if "\\u0000" in json.dumps(document):
        raise InvalidValue("quality report: no text may have a NUL character", param="document")
    try:
        report = msgspec.convert(document, QualityDocument)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"quality report: {error}", param="document") from error
    overall = report.accuracy.overall
    return {
        "weights_digest": report.weights_digest or "",
        "question_count": overall.asked,
        "accuracy": overall.share,
        "accuracy_low": overall.low,
        "accuracy_high": overall.high,
        "perplexity": report.perplexity,
        "size_bytes": report.size_bytes,
        "tokens_per_second": report.output_tokens_per_second,
        "skills": [
            {"skill": skill, **msgspec.to_builtins(score)}
            for skill, score in report.accuracy.by_skill.items()
        ],
    }


def note_failures(*, now: datetime) -> int:
    """Keep each failure that the fleet reports and is not known yet; return how many."""
    ReplicaFailure.objects.filter(noticed_at__lt=now - FAILURES_KEPT).delete()
    failed = [each for each in fleet_status().replicas if each.state == "failed"]
    known = set(
        Deployment.objects.filter(id__in={each.deployment_id for each in failed}).values_list(
            "id", flat=True
        )
    )
    return sum(
        _note_failure(
            ReplicaFailure(
                replica_id=each.replica_id,
                deployment_id=each.deployment_id,
                reason=storable(each.reason)[:FAILURE_REASON_MAX],
                started_at=each.started_at,
                noticed_at=now,
            )
        )
        for each in failed
        if each.deployment_id in known
    )


def note_weights() -> int:
    """Fix the digest of each variant whose weights a fleet has loaded for the first time; return
    how many. Later loads of other content are refused by the fleet."""
    found = {
        each.deployment_id: each.weights_digest
        for each in fleet_status().replicas
        if each.weights_digest is not None and each.state == "ready"
    }
    rows = selectors.deployments().filter(id__in=found, variant__weights_digest="")
    loaded = {row.variant_id: (row.variant, found[row.id]) for row in rows}
    actor = Actor.for_system("fleet")
    for variant, digest in loaded.values():
        update_variant(actor=actor, variant=variant, changes={"weights_digest": digest})
    return len(loaded)


@transaction.atomic
def _note_failure(failure: ReplicaFailure) -> bool:
    """Keep a failure, unless it is known; tell whether it is new."""
    fields = ("deployment_id", "reason", "started_at", "noticed_at")
    values = {field: getattr(failure, field) for field in fields}
    kept, is_new = ReplicaFailure.objects.get_or_create(
        replica_id=failure.replica_id, defaults=values
    )
    if is_new:
        logger.warning(
            "replica_failure_noted",
            replica_id=kept.replica_id,
            deployment_id=kept.deployment_id,
            reason=kept.reason,
        )
        raise_alarm_on_commit(OPERATOR, "replica_failed", now=kept.noticed_at)
    return is_new
