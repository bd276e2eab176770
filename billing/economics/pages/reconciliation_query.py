"""The question of the reconciliation page, held whole in its URL."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db.models import QuerySet

from billing.economics.models import JudgedHour, Judgement
from billing.reading.days import day_of, midnight


@dataclass(frozen=True, slots=True)
class ReconciliationQuery:
    """The hours of one UTC day from `from_hour` up to `to_hour`; empty ids mean any."""

    day: date
    from_hour: int = 0
    to_hour: int = 24
    deployment: str = ""
    replica: str = ""
    is_alarms_only: bool = False

    @property
    def start(self) -> datetime:
        """The first moment asked for."""
        return midnight(self.day) + timedelta(hours=self.from_hour)

    @property
    def end(self) -> datetime:
        """The first moment after it."""
        return midnight(self.day) + timedelta(hours=self.to_hour)

    @property
    def is_filtered(self) -> bool:
        """Whether rows of these hours are left out."""
        return bool(self.deployment or self.replica or self.is_alarms_only)

    def parameters(self, **changes: str) -> dict[str, str]:
        """Return the URL's parameters with `changes`, those at their default left out."""
        values = {
            "day": self.day.isoformat(),
            "from": str(self.from_hour),
            "to": str(self.to_hour),
            "deployment": self.deployment,
            "replica": self.replica,
            "alarms": "1" if self.is_alarms_only else "",
        } | changes
        usual = {"from": "0", "to": "24"}
        return {name: value for name, value in values.items() if value and usual.get(name) != value}


def parse_query(parameters: Mapping[str, str], usual: date) -> ReconciliationQuery:
    """Read the question from a URL; what makes no sense falls back to the usual."""
    from_hour = hour_of(parameters.get("from", ""), 0, 23)
    to_hour = hour_of(parameters.get("to", ""), 24, 24)
    return ReconciliationQuery(
        day=day_of(parameters.get("day", "")) or usual,
        from_hour=from_hour,
        to_hour=to_hour if to_hour > from_hour else 24,
        deployment=parameters.get("deployment", ""),
        replica=parameters.get("replica", "").strip(),
        is_alarms_only=parameters.get("alarms") == "1",
    )


def judgements(query: ReconciliationQuery) -> QuerySet[Judgement]:
    """Return what was judged of the hours asked for: the newest first, in an hour alarms first."""
    found = Judgement.objects.filter(hour_id__gte=query.start, hour_id__lt=query.end)
    if query.deployment:
        found = found.filter(deployment_id=query.deployment)
    if query.replica:
        found = found.filter(replica_id=query.replica)
    if query.is_alarms_only:
        found = found.filter(is_alarming=True)
    return found.order_by("-hour_id", "-is_alarming", "deployment_id", "replica_id", "is_sampled")


def judged_hours(query: ReconciliationQuery) -> set[datetime]:
    """Return which of the hours asked for were judged."""
    rows = JudgedHour.objects.filter(hour_at__gte=query.start, hour_at__lt=query.end)
    return set(rows.values_list("hour_at", flat=True))


def last_judged() -> datetime | None:
    """Return the newest hour that was judged."""
    return JudgedHour.objects.order_by("-hour_at").values_list("hour_at", flat=True).first()


def hour_of(text: str, usual: int, most: int) -> int:
    """Return the hour of a day in `text`, else the usual one."""
    return int(text) if text.isascii() and text.isdecimal() and int(text) <= most else usual
