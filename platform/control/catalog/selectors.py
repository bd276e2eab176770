"""Reads the catalog. Organizations see published variants of the models open to them."""

from django.db.models import Prefetch, Q, QuerySet

from control.catalog.models import Deployment, Fleet, Model, ReplicaFailure, Variant
from control.db.models import get_or_not_found
from control.organizations.models import Organization


def models_for(organization: Organization) -> QuerySet[Model]:
    """Return the models that an organization may use, with published variants and reports."""
    open_to = Q(organization_ids__isnull=True) | Q(organization_ids__contains=[organization.id])
    published = published_variants().prefetch_related("quality_reports")
    return (
        Model.objects.filter(open_to, variants__published_at__isnull=False)
        .distinct()
        .select_related("default_variant")
        .prefetch_related(Prefetch("variants", published))
    )


def variants_for(organization: Organization) -> QuerySet[Variant]:
    """Return the variants that an organization may use, by model, the oldest first."""
    open_to = Q(model__organization_ids__isnull=True) | Q(
        model__organization_ids__contains=[organization.id]
    )
    return published_variants().filter(open_to).order_by("model__public_id", "created_at")


def model_for(organization: Organization, name: str) -> Model:
    """Return a model by its id or public id. Raises ObjectNotFound, also where it is not open to
    the organization."""
    named = models_for(organization).filter(Q(id=name) | Q(public_id=name))
    return get_or_not_found(named, "model")


def published_variants() -> QuerySet[Variant]:
    """Return all variants that customers may use."""
    return Variant.objects.filter(published_at__isnull=False).select_related("model")


def models() -> QuerySet[Model]:
    """Return all models, for operators."""
    return Model.objects.select_related("default_variant").prefetch_related("variants")


def model(model_id: str) -> Model:
    """Return any model by its id, for operators. Raises ObjectNotFound."""
    return get_or_not_found(models(), "model", id=model_id)


def model_by_public_id(public_id: str) -> Model | None:
    return models().filter(public_id=public_id).first()


def variants(model: Model) -> QuerySet[Variant]:
    """Return all variants of a model, the oldest first."""
    return Variant.objects.filter(model=model).select_related("model")


def all_variants() -> QuerySet[Variant]:
    """Return all variants, for operators."""
    return Variant.objects.select_related("model", "parent")


def variant(variant_id: str) -> Variant:
    """Return any variant, for operators. Raises ObjectNotFound."""
    return get_or_not_found(all_variants(), "variant", id=variant_id)


def variant_of(model: Model, precision: str) -> Variant | None:
    """Return a model's variant of a precision, unless it is archived."""
    return variants(model).filter(precision=precision, archived_at__isnull=True).first()


def deployments(variant: Variant | None = None) -> QuerySet[Deployment]:
    """Return the deployments of a variant, or all of them, for operators."""
    found = Deployment.objects.select_related("variant__model", "dedicated_to", "fleet")
    return found if variant is None else found.filter(variant=variant)


def live_deployments(variant: Variant | None = None) -> QuerySet[Deployment]:
    """Return the deployments of a variant, or all of them, that have not ended."""
    return deployments(variant).filter(ended_at__isnull=True)


def deployment(deployment_id: str) -> Deployment:
    """Return any deployment, for operators. Raises ObjectNotFound."""
    return get_or_not_found(deployments(), "deployment", id=deployment_id)


def locked_model(model_id: str) -> Model:
    """Return a model with its row locked. Raises ObjectNotFound."""
    return get_or_not_found(Model.objects.select_for_update(no_key=True), "model", id=model_id)


def locked_variant(variant_id: str) -> Variant:
    """Return a variant with its row locked. Raises ObjectNotFound."""
    rows = Variant.objects.select_for_update(of=("self",), no_key=True).select_related("model")
    return get_or_not_found(rows, "variant", id=variant_id)


def locked_deployment(deployment_id: str) -> Deployment:
    """Return a deployment with its row locked. Raises ObjectNotFound."""
    rows = Deployment.objects.select_for_update(of=("self",), no_key=True)
    rows = rows.select_related("variant__model", "fleet")
    return get_or_not_found(rows, "deployment", id=deployment_id)


def fleets() -> QuerySet[Fleet]:
    """Return all fleets, for operators."""
    return Fleet.objects.all()


def fleet(fleet_id: str) -> Fleet:
    """Return a fleet, for operators. Raises ObjectNotFound."""
    return get_or_not_found(fleets(), "fleet", id=fleet_id)


def locked_fleet(fleet_id: str) -> Fleet:
    """Return a fleet with its row locked. Raises ObjectNotFound."""
    return get_or_not_found(Fleet.objects.select_for_update(no_key=True), "fleet", id=fleet_id)


def deployment_ids(fleet: Fleet) -> list[str]:
    """Return the ids of a fleet's deployments."""
    return list(fleet.deployments.values_list("id", flat=True))


def failures(deployment: Deployment | None = None) -> QuerySet[ReplicaFailure]:
    """Return the failures of a deployment's replicas, or all of them, the newest first."""
    found = ReplicaFailure.objects.select_related("deployment__variant__model")
    return found if deployment is None else found.filter(deployment=deployment)
