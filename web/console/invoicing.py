"""What invoice pages show beside the rows: a chart of days, and lines that open their requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from billing.invoicing.models import InvoiceLine
from billing.invoicing.periods import Period
from billing.invoicing.printed import line_groups
from serving.contract.money import format_dollars
from web.console.page import ConsolePage
from web.console.usage.chart import NANOS, Chart, Series

METERS = (("Uncached input", "input"), ("Cached input", "cached_input"), ("Output", "output"))
HEIGHT, WIDTH, GAP = 60, 20, 3
STATES = {
    "open": ("Open", ""),
    "overdue": ("Overdue", "badge-bad"),
    "disputed": ("Disputed", "badge-warn"),
    "paid": ("Paid", "badge-good"),
    "written_off": ("Written off", ""),
    "void": ("Taken back", ""),
}
"""What a state is called, and its colour."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One part of a day's column, in the units of the drawing."""

    x: int
    y: int
    height: int
    ink: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart without script: bars in a box of so many units, and the days named under them."""

    width: int
    bars: list[Bar]
    labels: list[tuple[int, int]]
    words: str


def chart_of(period: Period, days: Sequence[Sequence[int]]) -> Chart:
    """Return the days of a month as the page's chart: money by meter, in the three inks."""
    labels = [f"{period.starts_on:%b} {number}" for number in range(1, len(days) + 1)]
    titles = [f"{number} {period.words} (UTC)" for number in range(1, len(days) + 1)]
    series = [
        Series(
            label,
            f"ink-{meter}",
            [day[place] / NANOS for day in days],
            [format_dollars(day[place]) for day in days],
        )
        for place, (label, meter) in enumerate(METERS)
    ]
    return Chart("usd", labels, titles, series)


def drawing_of(period: Period, days: Sequence[Sequence[int]]) -> Drawing:
    """Return the same drawn on the server, for a page that is printed."""
    top = max((sum(day) for day in days), default=0) or 1
    bars = []
    for index, day in enumerate(days):
        for place, (_, meter) in enumerate(METERS):
            y, end = (HEIGHT - HEIGHT * sum(day[:count]) // top for count in (place + 1, place))
            if end > y:
                bars.append(Bar(index * WIDTH + GAP, y, end - y, f"ink-{meter}"))
    labels = [
        (index * WIDTH + WIDTH // 2, index + 1)
        for index in range(len(days))
        if index == 0 or (index + 1) % 5 == 0
    ]
    dearest = max(range(len(days)), key=lambda index: sum(days[index]), default=0)
    words = (
        f"Charges of each day of {period.words}; the most on day {dearest + 1}, "
        f"{format_dollars(sum(days[dearest]) if days else 0)}"
    )
    return Drawing(len(days) * WIDTH, bars, labels, words)


def groups_of(
    page: ConsolePage, lines: Sequence[InvoiceLine], period: Period
) -> list[dict[str, Any]]:
    """Return lines in their groups, each with the address of the requests behind it."""
    groups = line_groups(lines, period)
    in_order = iter(sorted(lines, key=lambda line: line.position))
    for group in groups:
        for row in group["rows"]:
            line = next(in_order)
            row["url"] = requests_url(page, line)
    return groups


def requests_url(page: ConsolePage, line: InvoiceLine) -> str:
    """Return the requests of a line: those at its price, received in its month."""
    return page.url(
        "requests",
        price=line.price_id,
        **{"from": line.period.starts_on.isoformat(), "to": line.period.last_day.isoformat()},
    )
