"""Models: what can be called, at which prices, how good and how quick."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from django.http import HttpResponse
from django.utils import timezone

from billing.reading import selectors as reading
from billing.reading.sums import UsageSums
from control.catalog.models import Model
from web.console.comparison import SkillRow, skill_rows_of
from web.console.offers import Offer, offers_for
from web.console.page import ConsolePage, console_page


@dataclass(frozen=True, slots=True)
class OfferCard:
    """An offer with the organization's own last hour on it."""

    offer: Offer
    hour: UsageSums


@dataclass(frozen=True, slots=True)
class ModelSection:
    """One model: its offers, and the reports of those that have one."""

    model: Model
    cards: list[OfferCard]
    reported: list[Offer]
    comparison: list[SkillRow]


@console_page("models")
def models(page: ConsolePage) -> HttpResponse:
    """All that the organization may call."""
    offers = offers_for(page.organization)
    hours = last_hour(page)
    by_model = sorted(offers, key=lambda offer: offer.model.public_id)
    sections = [
        section_of(model, list(group), hours)
        for model, group in groupby(by_model, key=lambda offer: offer.model)
    ]
    return page.render("console/models.html", {"sections": sections})


def section_of(model: Model, offers: Sequence[Offer], hours: dict[str, UsageSums]) -> ModelSection:
    """Return one model's part of the page."""
    reported = [offer for offer in offers if offer.report is not None]
    reported.sort(key=lambda offer: offer.variant.parent_id is not None)
    return ModelSection(
        model=model,
        cards=[OfferCard(offer, hours.get(offer.variant.id, UsageSums())) for offer in offers],
        reported=reported,
        comparison=skill_rows_of(reported),
    )


def last_hour(page: ConsolePage) -> dict[str, UsageSums]:
    """Return the last hour's sums by variant."""
    now = timezone.now()
    groups = reading.usage_by_group(
        page.organization,
        now - timedelta(hours=1),
        now,
        group_by=("variant",),
        with_ttft=True,
        with_money=page.may_see_money,
    )
    return {group.group[0]: group.sums for group in groups}
