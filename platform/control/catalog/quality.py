"""What a quality report says, read from the document that an evaluation wrote."""

from typing import Any

import msgspec

from control.errors import InvalidValue


class Score(msgspec.Struct, frozen=True):
    """A share of right answers with its 95 % interval."""

    right: int
    asked: int
    share: float
    low: float
    high: float


class Accuracy(msgspec.Struct, frozen=True):
    """The score over all questions and by skill."""

    overall: Score
    by_skill: dict[str, Score] = {}


class Document(msgspec.Struct, frozen=True):
    """The part of a report that the catalog shows; the rest is kept as it came."""

    accuracy: Accuracy
    perplexity: float | None = None
    size_bytes: int | None = None
    output_tokens_per_second: float | None = None


def columns(document: dict[str, Any]) -> dict[str, Any]:
    """Return a report's columns. Raises InvalidValue when it is no quality report."""
    try:
        report = msgspec.convert(document, Document)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"quality report: {error}", param="document") from error
    overall = report.accuracy.overall
    return {
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
