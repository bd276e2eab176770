"""Pages of usage and costs in OpenAI's shapes: buckets of time that hold results by group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from billing.reading import selectors
from billing.reading.buckets import WIDTH, Bucket, bucket_starts
from billing.reading.filters import Dimension
from billing.reading.sums import UsagePoint, UsageSums

DIMENSION: dict[str, Dimension] = {
    "project_id": "project",
    "api_key_id": "key",
    "model": "model",
    "service_tier": "tier",
    "batch": "tier",
    "line_item": "variant",
}
"""What `group_by` may name, and the dimension of ours that it is read from."""
NANO = Decimal("1e-9")

Labels = tuple[tuple[str, Any], ...]
"""What a result is grouped by: pairs of the wire's name and its value."""


@dataclass(frozen=True, slots=True)
class Page:
    """The buckets of one answer, and where the next one begins, if there is more."""

    starts: Sequence[datetime]
    width: timedelta
    next_start: datetime | None

    @property
    def start(self) -> datetime:
        """The beginning of the first bucket."""
        return self.starts[0]

    @property
    def end(self) -> datetime:
        """The end of the last bucket."""
        return self.starts[-1] + self.width


def page_of(start: datetime, end: datetime, bucket: Bucket, limit: int) -> Page | None:
    """Return the first `limit` buckets that touch [start, end); None when there are none."""
    # One more than wanted tells whether there is a next page, however far away the end is.
    starts = bucket_starts(start, min(end, start + WIDTH[bucket] * (limit + 1)), bucket)
    if not starts:
        return None
    return Page(starts[:limit], WIDTH[bucket], starts[limit] if len(starts) > limit else None)


def dimensions(group_by: Sequence[str]) -> list[Dimension]:
    """Return our dimensions for the wire's names, each once."""
    return list(dict.fromkeys(DIMENSION[name] for name in group_by))


def label(points: Sequence[UsagePoint], group_by: Sequence[str]) -> list[tuple[Labels, UsagePoint]]:
    """Return each point with what it is called on the wire."""
    groups = dimensions(group_by)
    seen = [dict(zip(groups, point.group, strict=True)) for point in points]
    models = selectors.model_names(one["model"] for one in seen if "model" in one)
    variants = selectors.variant_names(one["variant"] for one in seen if "variant" in one)
    words: Mapping[str, Callable[[str], Any]] = {
        "model": lambda value: models.get(value, value),
        "line_item": lambda value: variants.get(value, value),
        "batch": lambda value: value == "batch",
    }
    return [
        (
            tuple((name, words.get(name, str)(one[DIMENSION[name]])) for name in group_by),
            point,
        )
        for one, point in zip(seen, points, strict=True)
    ]


def render(
    page: Page,
    labelled: Sequence[tuple[Labels, UsagePoint]],
    result: Callable[[UsageSums, Mapping[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """Return the body of a page: every bucket, empty ones too."""
    found: dict[datetime, dict[Labels, UsageSums]] = {start: {} for start in page.starts}
    for labels, point in labelled:
        sums = found[point.bucket_at].get(labels, UsageSums())
        found[point.bucket_at][labels] = sums + point.sums
    buckets = [
        {
            "object": "bucket",
            "start_time": _seconds(start),
            "end_time": _seconds(start + page.width),
            "results": [result(sums, dict(labels)) for labels, sums in groups.items()],
        }
        for start, groups in found.items()
    ]
    return body(buckets, page.next_start)


def body(buckets: Sequence[Mapping[str, Any]], next_start: datetime | None) -> dict[str, Any]:
    """Return the outermost object of an answer."""
    return {
        "object": "page",
        "data": buckets,
        "has_more": next_start is not None,
        "next_page": None if next_start is None else f"page_{_seconds(next_start)}",
    }


def usage_result(sums: UsageSums, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens and requests of one group; what was not grouped by is null."""
    names = ("project_id", "user_id", "api_key_id", "model", "batch", "service_tier")
    return {
        "object": "organization.usage.completions.result",
        "input_tokens": sums.input_tokens,
        "input_uncached_tokens": sums.uncached_input_tokens,
        "input_cached_tokens": sums.cached_input_tokens,
        "output_tokens": sums.output_tokens,
        "num_model_requests": sums.request_count,
        **dict.fromkeys(names),
        **labels,
    }


def cost_result(sums: UsageSums, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the money of one group, in dollars as an exact number and in nanos."""
    amount = {"value": sums.charged_nanos * NANO, "currency": "usd", "nanos": sums.charged_nanos}
    return {
        "object": "organization.costs.result",
        "amount": amount,
        **dict.fromkeys(("line_item", "project_id", "api_key_id", "model", "service_tier")),
        **labels,
    }


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
