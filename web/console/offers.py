"""What an organization may call: published variants that have a price, with their reports."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from control.catalog import selectors as catalog
from control.catalog.models import Model, QualityReport, Variant
from control.prices import selectors as prices
from control.prices.models import Price
from control.tenants.models import Organization


@dataclass(frozen=True, slots=True)
class Offer:
    """One variant as customers see it. `public_id` is what a request names."""

    model: Model
    variant: Variant
    public_id: str
    price: Price
    report: QualityReport | None
    is_running: bool

    @property
    def is_default(self) -> bool:
        """Whether the model's own name means this variant."""
        return self.public_id == self.model.public_id


def offers_for(organization: Organization, at: datetime | None = None) -> list[Offer]:
    """Return the offers at a moment, now by default: running ones and defaults first."""
    in_force = prices.prices_in_force(at or timezone.now())
    running = running_variant_ids(organization)
    offers = [
        offer_of(model, variant, in_force[variant.id], variant.id in running)
        for model in catalog.models_for(organization)
        for variant in model.variants.all()
        if variant.id in in_force
    ]
    return sorted(offers, key=lambda offer: (not offer.is_running, not offer.is_default))


def offer_named(organization: Organization, public_id: str) -> Offer | None:
    """Return the offer that a request would get by this name."""
    offers = offers_for(organization)
    return next((offer for offer in offers if offer.public_id == public_id), None)


def offer_of(model: Model, variant: Variant, price: Price, is_running: bool) -> Offer:
    """Return a variant of a model as an offer."""
    return Offer(
        model=model,
        variant=variant,
        public_id=public_id_of(model, variant),
        price=price,
        report=max(variant.quality_reports.all(), key=lambda r: r.created_at, default=None),
        is_running=is_running,
    )


def public_id_of(model: Model, variant: Variant) -> str:
    """Return what a request names to get the variant."""
    is_default = model.default_variant_id == variant.id
    return model.public_id if is_default else f"{model.public_id}:{variant.precision}"


def running_variant_ids(organization: Organization) -> set[str]:
    """Return the variants that shall have replicas the organization may use."""
    return {
        deployment.variant_id
        for deployment in catalog.deployments()
        if deployment.replicas_min and deployment.dedicated_to_id in (None, organization.id)
    }
