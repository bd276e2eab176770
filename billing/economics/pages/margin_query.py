"""The question of the margin page, held whole in its URL."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from billing.economics.margin import Dimension
from billing.reading.days import day_of, midnight

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

DAYS_MAX = 31
DAYS_USUAL = 7
GROUPS: dict[Dimension, "StrOrPromise"] = {
    "variant": _("Variant"),
    "model": _("Model"),
    "organization": _("Organization"),
}


@dataclass(frozen=True, slots=True)
class MarginQuery:
    """Whole UTC days from `first` to `last`, both included; empty ids mean any."""

    first: date
    last: date
    by: Dimension = "variant"
    model: str = ""
    variant: str = ""
    is_cut: bool = False
    """Whether more was asked for than one look takes: the last days of it are shown."""

    @property
    def start(self) -> datetime:
        """The first moment asked for."""
        return midnight(self.first)

    @property
    def end(self) -> datetime:
        """The first moment after it."""
        return midnight(self.last + timedelta(days=1))

    def parameters(self, **changes: str) -> dict[str, str]:
        """Return the URL's parameters with `changes`, empty ones left out."""
        values = {
            "from": self.first.isoformat(),
            "to": self.last.isoformat(),
            "by": self.by,
            "model": self.model,
            "variant": self.variant,
        } | changes
        return {name: value for name, value in values.items() if value}


def parse_query(parameters: Mapping[str, str], today: date) -> MarginQuery:
    """Read the question from a URL; what makes no sense falls back to the usual."""
    last = min(day_of(parameters.get("to", "")) or today, today)
    usual = last - timedelta(days=DAYS_USUAL - 1)
    asked = min(day_of(parameters.get("from", "")) or usual, last)
    first = max(asked, last - timedelta(days=DAYS_MAX - 1))
    return MarginQuery(
        first=first,
        last=last,
        by=next((by for by in GROUPS if by == parameters.get("by")), "variant"),
        model=parameters.get("model", ""),
        variant=parameters.get("variant", ""),
        is_cut=asked < first,
    )
