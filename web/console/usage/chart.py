"""The values of a chart, and the texts shown on hover."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext

from billing.reading.sums import UsagePoint, UsageSums
from serving.contract.money import format_dollars
from web.console.formatting import count
from web.console.usage.query import METRICS, By, Metric

NANOS = 10**9
SERIES_MAX = 7


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of the chart: bar heights, and the texts shown on hover."""

    label: str
    ink: str
    values: list[float]
    shown: list[str]


@dataclass(frozen=True, slots=True)
class Chart:
    """The data that `charts.js` draws."""

    unit: str
    labels: list[str]
    titles: list[str]
    series: list[Series]

    @property
    def data(self) -> dict[str, Any]:
        """The chart as plain values, for the page's JSON."""
        return asdict(self)


def kinds_chart(starts: Sequence[datetime], points: Sequence[UsagePoint], by: By) -> Chart:
    """Return a chart that stacks the three kinds of tokens."""
    sums_by_start = {point.bucket_at: point.sums for point in points}
    sums = [sums_by_start.get(start, UsageSums()) for start in starts]
    uncached = [s.uncached_input_tokens for s in sums]
    cached = [s.cached_input_tokens for s in sums]
    series = [
        tokens_series(gettext("Uncached input"), "ink-input", uncached),
        tokens_series(gettext("Cached input"), "ink-cached_input", cached),
        tokens_series(gettext("Output"), "ink-output", [s.output_tokens for s in sums]),
    ]
    return Chart("tokens", labels(starts, by), titles(starts, by), series)


def tokens_series(label: str, ink: str, values: list[int]) -> Series:
    """Return a series of token counts."""
    return Series(label, ink, [float(value) for value in values], [count(v) for v in values])


def metric_chart(
    starts: Sequence[datetime],
    points: Sequence[UsagePoint],
    by: By,
    metric: Metric,
    names: Mapping[str, str],
) -> Chart:
    """Return a chart that stacks a metric by group; those after the seven largest are summed."""
    amounts: dict[str, dict[datetime, int]] = defaultdict(lambda: defaultdict(int))
    for point in points:
        group_id = point.group[0] if point.group else ""
        amounts[group_id][point.bucket_at] += amount(point.sums, metric)
    ranked = sorted(amounts, key=lambda group_id: -sum(amounts[group_id].values()))
    merged = [
        (names.get(g, g) or str(METRICS[metric]), [amounts[g][s] for s in starts]) for g in ranked
    ]
    series = [
        metric_series(label, f"series-{index}", values, metric)
        for index, (label, values) in enumerate(merged[:SERIES_MAX], start=1)
    ]
    if rest := merged[SERIES_MAX:]:
        total = [sum(column) for column in zip(*(values for _, values in rest), strict=True)]
        series.append(metric_series(gettext("Others"), "series-other", total, metric))
    return Chart(
        "usd" if metric == "cost" else metric, labels(starts, by), titles(starts, by), series
    )


def amount(sums: UsageSums, metric: Metric) -> int:
    """Return the metric of some sums: tokens, nano-dollars or requests."""
    if metric == "cost":
        return sums.charged_nanos
    if metric == "requests":
        return sums.request_count
    return sums.input_tokens + sums.output_tokens


def metric_series(label: str, ink: str, values: list[int], metric: Metric) -> Series:
    """Return a series of a metric; bars of money are in dollars, their texts are formatted."""
    if metric == "cost":
        return Series(
            label, ink, [value / NANOS for value in values], [format_dollars(v) for v in values]
        )
    return Series(label, ink, [float(value) for value in values], [count(v) for v in values])


def labels(starts: Sequence[datetime], by: By) -> list[str]:
    """Return the labels below the bars."""
    return [f"{s:%H:%M}" if by == "hour" and s.hour else f"{s:%b} {s.day}" for s in starts]


def titles(starts: Sequence[datetime], by: By) -> list[str]:
    """Return the titles of the hover texts."""
    time_format = "%a %-d %b %Y, %H:%M UTC" if by == "hour" else "%a %-d %b %Y (UTC)"
    return [start.strftime(time_format) for start in starts]
