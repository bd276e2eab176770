"""The rows of the reconciliation page: one shape for its table and its file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.economics.models import Judgement
from billing.economics.reconciliation import ONE_HOUR
from billing.reading.exports import utc_text
from control.api.streaming import csv_bytes

WINDOWS_APART_MAX = timedelta(minutes=3)
"""A window that long about an hour is that hour: samples come by the minute."""
UNSAMPLED_WORDS = _(
    "No fleet sampled this replica while it served these requests: their tokens are known from the"
    " gateway only, and their cost is unknown"
)
UNEXPLAINED_WORDS = {
    1: _("the engine produced tokens that nobody pays for"),
    -1: _("tokens were recorded that the engine did not produce"),
}
CSV_HEADER = (
    "hour_at_utc", "replica_id", "deployment_id", "deployment", "begins_at", "ends_at",
    "is_sampled", "is_alarming", "requests", "engine_input_tokens", "engine_output_tokens",
    "event_input_tokens", "event_output_tokens", "input_difference", "output_difference",
    "engine_more_input_max", "engine_more_output_max", "events_more_input_max",
    "events_more_output_max", "unexplained_input", "unexplained_output", "reasons",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """Input and output tokens, side by side."""

    input: int
    output: int

    @property
    def shown(self) -> tuple[str, str]:
        """Both with thousands set apart."""
        return f"{self.input:,}", f"{self.output:,}"

    @property
    def signed(self) -> tuple[str, str]:
        """Both with their signs; nothing has none."""
        return _signed(self.input), _signed(self.output)


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One replica's hour as the page shows it."""

    judgement: Judgement
    deployment: str

    @property
    def url(self) -> str:
        """Where the replica's hours are compared anew."""
        address = reverse("admin:economics_enginelife_changelist")
        return f"{address}?q={self.judgement.replica_id}"

    @property
    def engine(self) -> Pair:
        """What the engine counted."""
        return Pair(self.judgement.engine_input_tokens, self.judgement.engine_output_tokens)

    @property
    def events(self) -> Pair:
        """What was booked."""
        return Pair(self.judgement.event_input_tokens, self.judgement.event_output_tokens)

    @property
    def difference(self) -> Pair:
        """What the engine counted beyond the events."""
        one = self.judgement
        return Pair(
            one.engine_input_tokens - one.event_input_tokens,
            one.engine_output_tokens - one.event_output_tokens,
        )

    @property
    def engine_more(self) -> Pair:
        """How far the engine may be ahead."""
        return Pair(*self.judgement.allowed("engine"))

    @property
    def events_more(self) -> Pair:
        """How far the events may be ahead."""
        return Pair(*self.judgement.allowed("events"))

    @property
    def tolerance(self) -> tuple[str, str]:
        """Both bounds of each difference."""
        more, less = self.engine_more, self.events_more
        return _span(less.input, more.input), _span(less.output, more.output)

    @property
    def unexplained(self) -> Pair:
        """What is left beyond the tolerance."""
        one = self.judgement
        return Pair(one.unexplained_input_tokens, one.unexplained_output_tokens)

    @property
    def is_whole_hour(self) -> bool:
        """Whether its window is the hour, to the samples' grace."""
        one = self.judgement
        return abs(one.ends_at - one.begins_at - ONE_HOUR) < WINDOWS_APART_MAX

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Each reason, with how much it may make at most."""
        return [
            (words, f"{'+' if side == 'engine' else '-'}{input_:,} / {output:,}")
            for words, side, input_, output in self.judgement.reasons
        ]

    @property
    def verdict(self) -> str:
        """What is wrong, in words; empty where nothing is."""
        if not self.judgement.is_sampled:
            return str(UNSAMPLED_WORDS)
        left = self.unexplained
        sides = {(amount > 0) - (amount < 0) for amount in (left.input, left.output)} - {0}
        return "; ".join(str(UNEXPLAINED_WORDS[side]) for side in sorted(sides, reverse=True))


def csv_pages(rows: Iterable[JudgedRow]) -> Iterator[bytes]:
    """Yield the rows as CSV, their header first."""
    yield csv_bytes([CSV_HEADER])
    for row in rows:
        yield csv_bytes([_record(row)])


def _record(row: JudgedRow) -> tuple[object, ...]:
    one = row.judgement
    pairs = (row.engine, row.events, row.difference, row.engine_more, row.events_more)
    figures = [figure for pair in (*pairs, row.unexplained) for figure in (pair.input, pair.output)]
    return (
        utc_text(one.hour_id),
        one.replica_id,
        one.deployment_id,
        row.deployment,
        utc_text(one.begins_at),
        utc_text(one.ends_at),
        one.is_sampled,
        one.is_alarming,
        one.event_count,
        *figures,
        "; ".join(f"{words} ({most})" for words, most in row.reasons) or row.verdict,
    )


def _signed(amount: int) -> str:
    return f"{amount:+,}" if amount else "0"


def _span(less: int, more: int) -> str:
    if not less and not more:
        return "0"
    return gettext("%(least)s to %(most)s") % {"least": f"{-less:,}", "most": f"{more:+,}"}
