"""What a benchmark leaves behind: rows of figures over rounds, in Markdown and in JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles


@dataclass(frozen=True)
class Row:
    """One figure of one target: a value a round."""

    figure: str
    target: str
    unit: str
    values: Sequence[float]

    @property
    def cells(self) -> list[str]:
        first, third = _quartiles(self.values)
        spread = f"{_number(first)} to {_number(third)}"
        return [self.figure, self.target, _number(median(self.values)), spread, self.unit]


@dataclass(frozen=True)
class Table:
    """The rows of one benchmark, with what was proved of the run and what a reader must know."""

    title: str
    rows: Sequence[Row]
    checks: Sequence[str] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """All tables of one command on one machine."""

    command: str
    started_at: str
    machine: dict[str, str]
    tables: list[Table] = field(default_factory=list)

    def as_json(self) -> str:
        """Return everything, each round's value included."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def as_markdown(self) -> str:
        """Return the tables for a reader: median and quartiles over the rounds."""
        facts = {"command": f"`{self.command}`", "started": self.started_at, **self.machine}
        parts = ["# Penstock benchmarks", "\n".join(f"- {k}: {v}" for k, v in facts.items())]
        parts += [_table(table) for table in self.tables]
        return "\n\n".join(parts) + "\n"


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]


def difference(figure: str, ours: Row, theirs: Row) -> Row:
    """Return `ours` minus `theirs`, round by round."""
    values = [a - b for a, b in zip(ours.values, theirs.values, strict=True)]
    return Row(figure, f"{ours.target} - {theirs.target}", ours.unit, values)


def ratio(figure: str, ours: Row, theirs: Row) -> Row:
    """Return `ours` over `theirs`, round by round."""
    values = [a / b for a, b in zip(ours.values, theirs.values, strict=True)]
    return Row(figure, f"{ours.target} ÷ {theirs.target}", "", values)


def _table(table: Table) -> str:
    head = ["figure", "target", "median", "quartiles", "unit"]
    lines = ["## " + table.title, "", _line(head), "|---|---|---:|---:|---|"]
    lines += [_line(row.cells) for row in table.rows]
    for name, notes in (("Checked", table.checks), ("Note", table.remarks)):
        lines += ["", *(f"- {name}: {note}" for note in notes)] if notes else []
    return "\n".join(lines)


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = quantiles(values, n=4, method="inclusive")
    return first, third


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
