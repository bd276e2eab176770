"""The query of the usage page, which its URL holds completely."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal, TypeVar

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from billing.reading.days import day_of, midnight
from billing.reading.filters import UsageFilters

By = Literal["hour", "day"]
Group = Literal["", "model", "variant", "key", "project"]
Metric = Literal["tokens", "cost", "requests"]
Choice = TypeVar("Choice", bound=str)

DAYS_MAX: dict[By, int] = {"hour": 7, "day": 92}
GROUPS: dict[Group, Promise] = {
    "": _("Nothing"),
    "model": _("Model"),
    "variant": _("Variant"),
    "key": _("API key"),
    "project": _("Project"),
}
METRICS: dict[Metric, Promise] = {
    "tokens": _("Tokens"),
    "cost": _("Spend"),
    "requests": _("Requests"),
}


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Whole UTC days from `first` to `last`, both included; empty ids mean any."""

    first: date
    last: date
    by: By = "day"
    group: Group = ""
    metric: Metric = "tokens"
    model: str = ""
    key: str = ""
    project: str = ""

    @property
    def start(self) -> datetime:
        """The start of the period."""
        return midnight(self.first)

    @property
    def end(self) -> datetime:
        """The end of the period, exclusive."""
        return midnight(self.last + timedelta(days=1))

    @property
    def filters(self) -> UsageFilters:
        """The filters as billing's selectors take them."""
        return UsageFilters(
            project_ids=tuple(filter(None, [self.project])),
            key_ids=tuple(filter(None, [self.key])),
            model_ids=tuple(filter(None, [self.model])),
        )

    def parameters(self, **changes: str) -> dict[str, str]:
        """Return the URL's parameters, with `changes`, without default values."""
        values = {
            "from": self.first.isoformat(),
            "to": self.last.isoformat(),
            "by": self.by,
            "group": self.group,
            "metric": self.metric,
            "model": self.model,
            "key": self.key,
            "project": self.project,
        } | changes
        defaults = {"by": "day", "metric": "tokens"}
        return {
            name: value for name, value in values.items() if value and defaults.get(name) != value
        }


def parse_query(
    parameters: Mapping[str, str], today: date, *, metrics: Iterable[Metric] = METRICS
) -> UsageQuery:
    """Read the query from a URL; invalid values become the defaults."""
    by = one_of(parameters.get("by", ""), DAYS_MAX, "day")
    last = min(day_of(parameters.get("to", "")) or today, today)
    default_first = last - timedelta(days=1 if by == "hour" else 29)
    first = min(day_of(parameters.get("from", "")) or default_first, last)
    return UsageQuery(
        first=max(first, last - timedelta(days=DAYS_MAX[by] - 1)),
        last=last,
        by=by,
        group=one_of(parameters.get("group", ""), GROUPS, ""),
        metric=one_of(parameters.get("metric", ""), metrics, "tokens"),
        model=parameters.get("model", ""),
        key=parameters.get("key", ""),
        project=parameters.get("project", ""),
    )


def one_of(value: str, choices: Iterable[Choice], usual: Choice) -> Choice:
    """Return the choice that `value` names, or the usual one."""
    return next((choice for choice in choices if choice == value), usual)
