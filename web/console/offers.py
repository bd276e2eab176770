"""The models that an organization may call: published variants with a price, and their reports."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from control.catalog import selectors as catalog
from control.catalog.fleet_status import fleet_status
from control.catalog.models import Model, QualityReport, Variant
from control.organizations.models import Organization
from control.pricing import selectors as prices
from control.pricing.models import Price
from control.pricing.selectors import Schedule


@dataclass(frozen=True, slots=True)
class VariantOption:
    """One variant as customers see it. `public_id` is the model name of requests."""

    model: Model
    variant: Variant
    public_id: str
    schedule: Schedule
    report: QualityReport | None
    is_running: bool

    @property
    def price(self) -> Price:
        """The prices of the base band."""
        return self.schedule[0]

    @property
    def longer(self) -> Schedule:
        """The price bands above the base, for longer inputs."""
        return self.schedule[1:]

    @property
    def is_default(self) -> bool:
        """Whether the model's own name selects this variant."""
        return self.public_id == self.model.public_id


def variant_options(organization: Organization, at: datetime | None = None) -> list[VariantOption]:
    """Return the offers at a time, now by default, at the organization's own prices: running ones
    and defaults first."""
    schedules = prices.schedules_in_force(organization, at or timezone.now())
    running = running_variant_ids(organization)
    offers = [
        option_of(variant, schedules[variant.id], variant.id in running)
        for variant in catalog.variants_for(organization).prefetch_related("quality_reports")
        if variant.id in schedules
    ]
    return sorted(offers, key=lambda offer: (not offer.is_running, not offer.is_default))


def option_named(organization: Organization, public_id: str) -> VariantOption | None:
    """Return the offer that a request gets by this name; None if there is none."""
    offers = variant_options(organization)
    return next((offer for offer in offers if offer.public_id == public_id), None)


def option_of(variant: Variant, schedule: Schedule, is_running: bool) -> VariantOption:
    """Return a variant as an offer."""
    return VariantOption(
        model=variant.model,
        variant=variant,
        public_id=public_id_of(variant),
        schedule=schedule,
        report=variant.latest_report,
        is_running=is_running,
    )


def public_id_of(variant: Variant) -> str:
    """Return the model name that selects the variant."""
    return variant.model.public_id if variant.is_default else str(variant)


def running_variant_ids(organization: Organization) -> set[str]:
    """Return the variants with a deployment that the organization may use and that serves
    requests."""
    fleet = fleet_status()
    return {
        deployment.variant_id
        for deployment in catalog.deployments()
        if deployment.dedicated_to_id in {None, organization.id}
        and deployment.state(fleet).is_serving
    }
