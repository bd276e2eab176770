"""The question a page of requests answers, held whole in its URL."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from billing.reading.days import day_of, midnight
from billing.reading.filters import UsageFilters

DAYS_OF_A_FILE = 30
"""What a file covers where no days are chosen."""


@dataclass(frozen=True, slots=True)
class RequestQuery:
    """Whole UTC days from `first` to `last`, both included, None without a bound; empty ids mean
    any. `before` is the last request of the page above."""

    first: date | None
    last: date | None
    model: str
    key: str
    project: str
    before: uuid.UUID | None
    price: str = ""

    @property
    def start(self) -> datetime | None:
        """The first moment asked for."""
        return midnight(self.first) if self.first else None

    @property
    def end(self) -> datetime | None:
        """The first moment after it."""
        return midnight(self.last + timedelta(days=1)) if self.last else None

    @property
    def filters(self) -> UsageFilters:
        """The same, as billing asks it."""
        return UsageFilters(
            project_ids=tuple(filter(None, [self.project])),
            key_ids=tuple(filter(None, [self.key])),
            model_ids=tuple(filter(None, [self.model])),
            price_ids=tuple(filter(None, [self.price])),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether some requests are left out."""
        return bool(self.parameters())

    def within_days(self, today: date) -> "RequestQuery":
        """Return the question with both bounds: up to today, and thirty days by default."""
        last = min(self.last or today, today)
        first = self.first or last - timedelta(days=DAYS_OF_A_FILE - 1)
        return replace(self, first=min(first, last), last=last)

    def parameters(self, **changes: str) -> dict[str, str]:
        """Return the URL's parameters for the first page, with `changes`."""
        values = {
            "from": self.first.isoformat() if self.first else "",
            "to": self.last.isoformat() if self.last else "",
            "model": self.model,
            "key": self.key,
            "project": self.project,
            "price": self.price,
        } | changes
        return {name: value for name, value in values.items() if value}


def parse_query(parameters: Mapping[str, str]) -> RequestQuery:
    """Read the question from a URL; what makes no sense is not asked."""
    return RequestQuery(
        first=day_of(parameters.get("from", "")),
        last=day_of(parameters.get("to", "")),
        model=parameters.get("model", ""),
        key=parameters.get("key", ""),
        project=parameters.get("project", ""),
        before=event_id_of(parameters.get("before", "")),
        price=parameters.get("price", ""),
    )


def event_id_of(text: str) -> uuid.UUID | None:
    """Return the id in `text`, None where there is none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
