"""The rows of the margin page: one shape for its table, its chart and its file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

from django.utils.translation import gettext, ngettext

from billing.economics.margin import COLUMN, Dimension, Margin, summed
from billing.economics.pages.margin_query import MarginQuery
from billing.economics.pages.names import Names
from billing.reading.exports import plain_dollars
from control.api.streaming import csv_bytes
from serving.contract.money import exact_dollars, format_dollars

BARS_MAX = 10
"""Bars that can be told apart; the rest are added up as others."""
NOBODY = Margin(None, None, None)
HOUR_SECONDS = 3600
CSV_HEADER = (
    "from_utc_day",
    "to_utc_day",
    "by",
    "id",
    "name",
    "is_idle",
    "input_tokens",
    "output_tokens",
    "replica_hours",
    "revenue_usd",
    "cost_usd",
    "margin_usd",
    "is_cost_known",
    "costs_shared_by",
)


@dataclass(frozen=True, slots=True)
class Money:
    """An amount for people, and the whole of it for hovering."""

    nanos: int

    @property
    def shown(self) -> str:
        """The amount as people read it."""
        return format_dollars(self.nanos)

    @property
    def exact(self) -> str:
        """No digit rounded away."""
        return exact_dollars(self.nanos)


@dataclass(frozen=True, slots=True)
class MarginRow:
    """What one model, variant or organization earned, or what idle replicas cost."""

    id: str
    name: str
    margin: Margin

    @property
    def is_idle(self) -> bool:
        """Whether replicas worked for nobody."""
        return self.margin.is_idle

    @property
    def label(self) -> str:
        """What the row is called, idle time told apart."""
        if self.is_idle and self.id:
            return gettext("%(name)s, idle") % {"name": self.name}
        return self.name

    @property
    def revenue(self) -> Money:
        """What customers paid."""
        return Money(self.margin.revenue_nanos)

    @property
    def cost(self) -> Money:
        """What the replicas cost."""
        return Money(self.margin.cost_nanos)

    @property
    def margin_left(self) -> Money:
        """Revenue less cost."""
        return Money(self.margin.margin_nanos)

    @property
    def percent(self) -> str:
        """The margin's part of the revenue, where there is any."""
        return percent(self.margin.margin_nanos, self.margin.revenue_nanos)


def rows_of(found: Iterable[Margin], query: MarginQuery, called: Names) -> list[MarginRow]:
    """Return what was found by the query's dimension, the dearest first, then the idle rows; of
    organizations there is one idle row, since nobody in particular leaves replicas idle."""
    wanted = [row for row in found if _matches(row, query)]
    grouped = _grouped((row for row in wanted if not row.is_idle), query.by)
    idle = [row for row in wanted if row.is_idle]
    idle_by: tuple[Dimension, ...] = () if query.by == "organization" else (query.by,)
    return [
        *(_row(row, query.by, called) for row in grouped),
        *(_row(row, query.by, called) for row in summed(idle, idle_by)),
    ]


def total_of(rows: Iterable[MarginRow]) -> MarginRow:
    """Return all rows added up."""
    return MarginRow("", gettext("Total"), reduce(add, (row.margin for row in rows), NOBODY))


def shown_rows(rows: Sequence[MarginRow], count_max: int) -> list[MarginRow]:
    """Return the rows with those of use past `count_max` added up as others."""
    served = [row for row in rows if not row.is_idle]
    rest = served[count_max:]
    if not rest:
        return list(rows)
    others = reduce(add, (row.margin for row in rest))
    words = ngettext("%(count)d other", "%(count)d others", len(rest)) % {"count": len(rest)}
    return [
        *served[:count_max],
        MarginRow("", words, others),
        *(row for row in rows if row.is_idle),
    ]


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of the chart; series of one stack stand on each other."""

    label: str
    ink: str
    stack: str
    values: list[str]
    shown: list[str]


def chart_of(rows: Sequence[MarginRow]) -> dict[str, Any]:
    """Return what `charts.js` draws: revenue beside the cost of use and of idle replicas."""
    bars = shown_rows(rows, BARS_MAX)
    keys = list(dict.fromkeys((row.id, row.name) for row in bars))
    served = {(row.id, row.name): row.margin for row in bars if not row.is_idle}
    idle = {(row.id, row.name): row.margin for row in bars if row.is_idle}
    series = [
        _series(
            gettext("Revenue"),
            "revenue",
            "revenue",
            [_of(served, key).revenue_nanos for key in keys],
        ),
        _series(
            gettext("Cost of usage"),
            "served",
            "cost",
            [_of(served, key).cost_nanos for key in keys],
        ),
        _series(
            gettext("Cost of idle replicas"),
            "idle",
            "cost",
            [_of(idle, key).cost_nanos for key in keys],
        ),
    ]
    left = [(_of(served, key) + _of(idle, key)).margin_nanos for key in keys]
    names = [name for _, name in keys]
    return {
        "unit": "usd",
        "labels": names,
        "titles": names,
        "series": [asdict(one) for one in series],
        "totals": [
            gettext("Margin %(amount)s") % {"amount": format_dollars(nanos)} for nanos in left
        ],
    }


def csv_of(rows: Iterable[MarginRow], query: MarginQuery, basis_words: str) -> bytes:
    """Return all rows as CSV, amounts exact."""
    return csv_bytes([CSV_HEADER, *(_record(row, query, basis_words) for row in rows)])


def percent(part_nanos: int, whole_nanos: int) -> str:
    """Return a part of a whole in whole tenths of a percent, rounded down; a dash without any."""
    if whole_nanos <= 0:
        return "\N{EN DASH}"
    tenths = abs(part_nanos) * 1000 // whole_nanos
    sign = "-" if part_nanos < 0 else ""
    return f"{sign}{tenths // 10:,}.{tenths % 10} %"


def hours_text(seconds: int) -> str:
    """Return replica-seconds as hours, to a tenth."""
    tenths = (seconds * 10 + HOUR_SECONDS // 2) // HOUR_SECONDS
    return f"{tenths // 10:,}.{tenths % 10}"


def _matches(row: Margin, query: MarginQuery) -> bool:
    return query.model in ("", row.model_id) and query.variant in ("", row.variant_id)


def _grouped(served: Iterable[Margin], by: Dimension) -> list[Margin]:
    """Add up what was served; without one organization it is everybody's, never idle."""
    rows = summed(served, (by,))
    if by == "organization":
        return rows
    return [Margin(row.model_id, row.variant_id, "") + row for row in rows]


def _row(row: Margin, by: Dimension, called: Names) -> MarginRow:
    if row.is_idle and by == "organization":
        return MarginRow("", gettext("Idle replicas"), row)
    key = getattr(row, COLUMN[by])
    name = {"model": called.model, "variant": called.variant, "organization": called.organization}
    return MarginRow(key or "", name[by](key), row)


def _of(rows: Mapping[tuple[str, str], Margin], key: tuple[str, str]) -> Margin:
    return rows.get(key, NOBODY)


def _series(label: str, ink: str, stack: str, nanos: list[int]) -> Series:
    heights = [plain_dollars(value) for value in nanos]
    return Series(label, ink, stack, heights, [format_dollars(value) for value in nanos])


def _record(row: MarginRow, query: MarginQuery, basis_words: str) -> tuple[object, ...]:
    margin = row.margin
    return (
        query.first.isoformat(),
        query.last.isoformat(),
        query.by,
        row.id,
        row.name,
        row.is_idle,
        margin.input_tokens,
        margin.output_tokens,
        hours_text(margin.replica_seconds).replace(",", ""),
        plain_dollars(margin.revenue_nanos),
        plain_dollars(margin.cost_nanos),
        plain_dollars(margin.margin_nanos),
        margin.is_cost_known,
        basis_words,
    )
