"""The end of deployments and variants: ended or archived ones stay for the record, and what nothing
refers to can be deleted."""

from typing import Any

from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone
from django.utils.translation import gettext

from control.audit import services as audit
from control.catalog import selectors
from control.catalog.models import Deployment, Variant
from control.db.row_changes import apply_changes
from control.errors import Conflict
from control.feed.services import FeedRecord, publish
from control.permissions import Actor, Permission, require_operator

references_requested = Signal()
"""Sent before a row is deleted, with `row` (Deployment or Variant); receivers return what refers to
it as sentences, none if nothing does."""


@transaction.atomic
def end_deployment(*, actor: Actor, deployment: Deployment) -> Deployment:
    """End a stopped deployment: gateways and the fleet forget it, and it never starts again. Raises
    Conflict while it is to run."""
    require_operator(actor, Permission.CATALOG_WRITE)
    deployment = selectors.locked_deployment(deployment.id)
    if deployment.is_ended:
        return deployment
    if not deployment.is_stopped:
        raise Conflict("It is to run. Stop it first: set replicas_min to 0.", param="replicas_min")
    apply_changes(deployment, {"ended_at": timezone.now()})
    audit.record_about(actor, "deployment.ended", deployment)
    publish([FeedRecord("deployment", deployment.id, None)])
    return deployment


@transaction.atomic
def delete_deployment(*, actor: Actor, deployment: Deployment) -> None:
    """Delete an ended deployment with the failures of its replicas. Raises Conflict, which says
    what refers to it."""
    require_operator(actor, Permission.CATALOG_WRITE)
    deployment = selectors.locked_deployment(deployment.id)
    if not deployment.is_ended:
        raise Conflict("It has not ended. End it first.")
    _require_unreferenced(deployment, [])
    audit.record_about(actor, "deployment.deleted", deployment)
    deployment.failures.all().delete()
    deployment.delete()


@transaction.atomic
def archive_variant(*, actor: Actor, variant: Variant) -> Variant:
    """Archive a variant: it can be neither deployed nor published again, and its precision is free
    for another variant. Raises Conflict while it is published or has a deployment that has not
    ended."""
    require_operator(actor, Permission.CATALOG_WRITE)
    variant = selectors.locked_variant(variant.id)
    if variant.is_archived:
        return variant
    if variant.published_at is not None:
        raise Conflict(f"{variant} is published. Withdraw it first.")
    if selectors.live_deployments(variant).exists():
        raise Conflict(f"{variant} has deployments. End them first.")
    apply_changes(variant, {"archived_at": timezone.now()})
    audit.record_about(actor, "variant.archived", variant)
    return variant


@transaction.atomic
def delete_variant(*, actor: Actor, variant: Variant) -> None:
    """Delete an unpublished variant with its quality reports. Raises Conflict, which says what
    refers to it."""
    require_operator(actor, Permission.CATALOG_WRITE)
    variant = selectors.locked_variant(variant.id)
    if variant.published_at is not None:
        raise Conflict(f"{variant} is published. Withdraw it first.")
    own = (
        (gettext("It has deployments."), variant.deployments.exists()),
        (gettext("Quantized variants were made of it."), variant.quantized.exists()),
        (gettext("Price books have prices of it."), variant.prices.exists()),
    )
    _require_unreferenced(variant, [words for words, is_there in own if is_there])
    audit.record_about(
        actor, "variant.deleted", variant,
        weights=variant.weights, weights_digest=variant.weights_digest,
    )  # fmt: skip
    variant.quality_reports.all().delete()
    variant.delete()


def _require_unreferenced(row: Any, found: list[str]) -> None:
    """Raise Conflict where something refers to a row."""
    for _, sentences in references_requested.send(type(row), row=row):
        found += sentences or ()
    if found:
        advice = gettext("It stays for the record.")
        raise Conflict(" ".join((*found, advice)), code="referenced")
