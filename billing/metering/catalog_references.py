"""Keeps deployments and variants that usage events name, for receipts and invoices."""

from typing import Any

from django.utils.translation import gettext

from billing.metering.models import Origin, Supply
from control.catalog.models import Deployment, Variant
from control.catalog.retirement import references_requested


def listen() -> None:
    """Answer before a deployment or a variant is deleted."""
    references_requested.connect(
        _of_deployment, sender=Deployment, dispatch_uid="metering.deployment"
    )
    references_requested.connect(_of_variant, sender=Variant, dispatch_uid="metering.variant")


def _of_deployment(*, row: Deployment, **_: Any) -> list[str]:
    return _usage(Origin.objects.filter(deployment_id=row.id).exists())


def _of_variant(*, row: Variant, **_: Any) -> list[str]:
    return _usage(Supply.objects.filter(variant_id=row.id).exists())


def _usage(is_named: bool) -> list[str]:
    return [gettext("Usage of customers names it.")] if is_named else []
