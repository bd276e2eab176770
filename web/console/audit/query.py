"""The question the audit page answers, held whole in its URL."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from billing.reading.days import day_of, midnight
from control.audit.selectors import EventFilters

BY_MAX = 254
DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Whole UTC days from `first` to `last`, both included, None without a bound; empty texts mean
    any. `before` is the last deed of the page above."""

    first: date | None
    last: date | None
    about: str
    by: str
    before: int | None

    @property
    def filters(self) -> EventFilters:
        """The same, as control asks it."""
        return EventFilters(
            about=self.about,
            by=self.by,
            start=midnight(self.first) if self.first else None,
            end=midnight(self.last + timedelta(days=1)) if self.last else None,
        )

    @property
    def is_filtered(self) -> bool:
        """Whether some deeds are left out."""
        return bool(self.parameters())

    def parameters(self, **changes: str) -> dict[str, str]:
        """Return the URL's parameters for the first page, with `changes`."""
        values = {
            "from": self.first.isoformat() if self.first else "",
            "to": self.last.isoformat() if self.last else "",
            "about": self.about,
            "by": self.by,
        } | changes
        return {name: value for name, value in values.items() if value}


def parse_query(parameters: Mapping[str, str]) -> AuditQuery:
    """Read the question from a URL; what makes no sense is not asked."""
    before = parameters.get("before", "")
    about = parameters.get("about", "")
    return AuditQuery(
        first=day_of(parameters.get("from", "")),
        last=day_of(parameters.get("to", "")),
        about=about if about.isascii() and about.replace("_", "").isalpha() else "",
        by=parameters.get("by", "").strip()[:BY_MAX],
        before=int(before) if before.isdecimal() and len(before) <= DIGITS_MAX else None,
    )
