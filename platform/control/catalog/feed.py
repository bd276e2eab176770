"""Builds the feed records of variants and deployments."""

from control.catalog.models import Deployment, Variant
from control.feed.services import FeedRecord
from serving.contract.records import DeploymentRecord, DeploymentTimeouts, ModelRecord
from serving.contract.resources import ReplicaResources


def model_record(variant: Variant) -> FeedRecord:
    """Return the feed record of a variant. The model's own name means its default variant, which,
    like all others, also has the name `model:precision`. An unpublished variant has no record."""
    if variant.published_at is None:
        return FeedRecord("model", variant.id, None)
    model = variant.model
    full_name = f"{model.public_id}:{variant.precision}"
    record = ModelRecord(
        variant_id=variant.id,
        model_id=model.id,
        public_id=model.public_id if variant.is_default else full_name,
        aliases=(full_name,) if variant.is_default else (),
        precision=variant.precision,
        context_tokens=variant.context_tokens,
        output_tokens_max=variant.output_tokens_max,
        vocabulary_size=variant.vocabulary_size,
        created_at=model.created_at,
        capabilities=tuple(variant.capabilities),
        organization_ids=None if model.organization_ids is None else tuple(model.organization_ids),
        task=model.task,  # type: ignore[arg-type]
        dimensions=variant.dimensions,
    )
    return FeedRecord("model", variant.id, record)


def deployment_record(deployment: Deployment) -> FeedRecord:
    """Return the feed record of a deployment; its engine arguments follow its variant's."""
    variant = deployment.variant
    record = DeploymentRecord(
        deployment_id=deployment.id,
        variant_id=variant.id,
        fleet_id=deployment.fleet.id,
        region=deployment.fleet.region or None,
        engine=deployment.engine,  # type: ignore[arg-type]
        weights=variant.weights,
        replicas_min=deployment.replicas_min,
        replicas_max=deployment.replicas_max,
        slots=deployment.slots,
        engine_arguments=(*variant.engine_arguments, *deployment.engine_arguments),
        external_urls=tuple(deployment.external_urls),
        dedicated_to=deployment.dedicated_to_id,
        timeouts=DeploymentTimeouts(
            connect_seconds=deployment.connect_seconds,
            first_byte_seconds=deployment.first_byte_seconds,
            gap_seconds=deployment.gap_seconds,
            total_seconds=deployment.total_seconds,
            queue_seconds=deployment.queue_seconds,
            wake_seconds=deployment.wake_seconds,
        ),
        reserved_share=deployment.reserved_share,
        task=variant.model.task,  # type: ignore[arg-type]
        sleep_after_seconds=deployment.sleep_after_seconds,
        weights_digest=variant.weights_digest or None,
        resources=ReplicaResources(
            accelerator=variant.accelerator,
            tensor_parallel_size=variant.tensor_parallel_size,
            pipeline_parallel_size=variant.pipeline_parallel_size,
            context_tokens=variant.context_tokens,
        ),
    )
    return FeedRecord("deployment", deployment.id, record)
