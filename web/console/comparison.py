"""Quality reports side by side, as lines of scores with their 95 % intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from control.catalog.models import QualityReport
from web.console.offers import Offer

ALL = "All questions"


@dataclass(frozen=True, slots=True)
class ScoreBar:
    """A share of right answers with its interval, all of one; and where to draw it, in percent."""

    share: float
    low: float
    high: float

    @property
    def left(self) -> str:
        """Where the interval begins."""
        return f"{100 * self.low:.2f}"

    @property
    def width(self) -> str:
        """How long it is."""
        return f"{100 * (self.high - self.low):.2f}"

    @property
    def middle(self) -> str:
        """Where the share's own mark begins."""
        return f"{min(100 * self.share, 99):.2f}"


@dataclass(frozen=True, slots=True)
class SkillRow:
    """One skill over all variants; None where a report does not know it."""

    label: str
    scores: list[ScoreBar | None]


def skill_rows_of(offers: Sequence[Offer]) -> list[SkillRow]:
    """Return a line for all questions, then one per skill."""
    reports = [offer.report for offer in offers if offer.report is not None]
    tables = [scores_of(report) for report in reports]
    labels = list(dict.fromkeys(label for table in tables for label in table))
    return [SkillRow(label, [table.get(label) for table in tables]) for label in labels]


def scores_of(report: QualityReport) -> dict[str, ScoreBar]:
    """Return the scores of one report by what they are called."""
    overall = {"share": report.accuracy, "low": report.accuracy_low, "high": report.accuracy_high}
    scores = {ALL: score_of(overall)} if report.accuracy is not None else {}
    return scores | {label_of(skill["skill"]): score_of(skill) for skill in report.skills}


def score_of(values: Mapping[str, Any]) -> ScoreBar:
    """Return a score from a report's figures."""
    return ScoreBar(float(values["share"]), float(values["low"]), float(values["high"]))


def label_of(skill: str) -> str:
    """Return a skill's name for people."""
    return skill.replace("_", " ").capitalize().replace("Json", "JSON")
