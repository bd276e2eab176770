"""The models that the organization can call, with prices and a comparison of quality. (Django
reserves an app's module `models` for its tables.)"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from django.utils.translation import gettext

from billing.reading import selectors as reading
from billing.reading.sums import UsageSums
from control.catalog.models import Model, QualityReport
from web.console.base import PageContext, console_page
from web.console.offers import VariantOption, variant_options


@dataclass(frozen=True, slots=True)
class ScoreBar:
    """A share of correct answers (0 to 1) with its interval, and its position in percent."""

    share: float
    low: float
    high: float

    @property
    def left(self) -> str:
        """The start of the interval."""
        return f"{100 * self.low:.2f}"

    @property
    def width(self) -> str:
        """The length of the interval."""
        return f"{100 * (self.high - self.low):.2f}"

    @property
    def middle(self) -> str:
        """The start of the share's mark."""
        return f"{min(100 * self.share, 99):.2f}"


@dataclass(frozen=True, slots=True)
class SkillRow:
    """One skill across all variants; None for a report without it."""

    label: str
    scores: list[ScoreBar | None]


def skill_rows_of(offers: Sequence[VariantOption]) -> list[SkillRow]:
    """Return a row for all questions, then one per skill."""
    reports = [offer.report for offer in offers if offer.report is not None]
    tables = [scores_of(report) for report in reports]
    labels = list(dict.fromkeys(label for table in tables for label in table))
    return [SkillRow(label, [table.get(label) for table in tables]) for label in labels]


def scores_of(report: QualityReport) -> dict[str, ScoreBar]:
    """Return the scores of a report by label."""
    overall = {"share": report.accuracy, "low": report.accuracy_low, "high": report.accuracy_high}
    scores = {gettext("All questions"): score_of(overall)} if report.accuracy is not None else {}
    return scores | {label_of(skill["skill"]): score_of(skill) for skill in report.skills}


def score_of(values: Mapping[str, Any]) -> ScoreBar:
    """Return a score from a report's values."""
    return ScoreBar(float(values["share"]), float(values["low"]), float(values["high"]))


def label_of(skill: str) -> str:
    """Return a skill's label."""
    return skill.replace("_", " ").capitalize().replace("Json", "JSON")


@dataclass(frozen=True, slots=True)
class OfferCard:
    """An offer with the organization's own usage of the last hour."""

    offer: VariantOption
    hour: UsageSums


@dataclass(frozen=True, slots=True)
class ModelSection:
    """One model: its offers, and those of them with a report."""

    model: Model
    cards: list[OfferCard]
    reported: list[VariantOption]
    comparison: list[SkillRow]


@console_page("models")
def models(page: PageContext) -> HttpResponse:
    """List the models that the organization may call."""
    offers = variant_options(page.organization)
    hours = last_hour(page)
    by_model = sorted(offers, key=lambda offer: offer.model.public_id)
    sections = [
        section_of(model, list(group), hours)
        for model, group in groupby(by_model, key=lambda offer: offer.model)
    ]
    return page.render("console/models.html", {"sections": sections})


def section_of(
    model: Model, offers: Sequence[VariantOption], hours: dict[str, UsageSums]
) -> ModelSection:
    """Return a model's section of the page."""
    reported = [offer for offer in offers if offer.report is not None]
    reported.sort(key=lambda offer: offer.variant.parent_id is not None)
    return ModelSection(
        model=model,
        cards=[OfferCard(offer, hours.get(offer.variant.id, UsageSums())) for offer in offers],
        reported=reported,
        comparison=skill_rows_of(reported),
    )


def last_hour(page: PageContext) -> dict[str, UsageSums]:
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
