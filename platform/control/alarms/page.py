"""The operators' page of alarms by kind, and of the rows that need attention."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from control.admin.base import OperatorPage, row_url
from control.alarms.catalogue import (
    EVIDENCE_LINKS,
    AlarmDescription,
    admin_url,
    describe,
    evidence_url,
)
from control.alarms.count import OPERATOR
from control.alarms.models import AlarmCount

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

DAYS = (1, 7, 30)
NAMED_MAX = 3
"""Organizations named for each kind; the list of counts has them all."""
ORGANIZATION = "organizations.Organization"
"""A model by name, since alarms are a layer below organizations."""


AttentionSource = Callable[[HttpRequest, datetime, Collection[str]], SafeString]
"""Returns the rows of a package that need an operator as `<li>` elements, or nothing. Given are the
time since when, and the kinds of alarms since then."""
_sources: list[AttentionSource] = []


def register(source: AttentionSource) -> None:
    """Add a package's rows to the page."""
    _sources.append(source)


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """One kind of alarm over some days."""

    kind: str
    description: AlarmDescription
    count: int
    last_day: date
    owners: tuple["AlarmOwner", ...]
    """The organizations, the most often first; none for the operator's own."""

    @property
    def shown_count(self) -> str:
        """The count with thousands set apart."""
        return f"{self.count:,}"

    @property
    def named(self) -> tuple["AlarmOwner", ...]:
        """The first organizations."""
        return self.owners[:NAMED_MAX]

    @property
    def more_count(self) -> int:
        """The number of organizations that are not named."""
        return max(len(self.owners) - NAMED_MAX, 0)

    @property
    def link_text(self) -> "StrOrPromise":
        """The text of the link to its evidence."""
        return EVIDENCE_LINKS[self.description.evidence].text

    @property
    def url(self) -> str:
        """The URL of its evidence."""
        return evidence_url(self.description.evidence, self.kind)

    @property
    def counts_url(self) -> str:
        """The URL of its counts by day and organization."""
        return admin_url("alarms_alarmcount_changelist", kind__exact=self.kind)


@dataclass(frozen=True, slots=True)
class AlarmOwner:
    """An organization, and how often it had a kind of alarm."""

    name: str
    count: int
    url: str
    """The organization's page; empty if it has no row anymore."""

    @property
    def shown_count(self) -> str:
        """The count with thousands set apart."""
        return f"{self.count:,}"


class AlarmsPage(OperatorPage):
    """Alarms of the last days by kind, and the rows that need attention."""

    title = _("Alarms")
    purpose = _(
        "What needs attention: alarms by kind, with what each means and what to do, and what waits"
        " for an operator."
    )
    permission_required = "alarms.view_alarmcount"
    template_name = "alarms/overview.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the alarms with their descriptions, and the lists of each registered source."""
        now = timezone.now()
        asked = self.request.GET.get("days", "")
        days = next((days for days in DAYS if str(days) == asked), 7)
        rows = alarm_rows(now.date() - timedelta(days=days - 1))
        since, kinds = now - timedelta(days=days), {row.kind for row in rows}
        attention = [source(self.request, since, kinds) for source in _sources]
        return super().get_context_data(
            **kwargs,
            days=days,
            choices=DAYS,
            rows=rows,
            attention=[each for each in attention if each],
        )


def alarm_rows(since: date) -> list[AlarmRow]:
    """Return the alarms counted since a day, the latest first, then the most frequent."""
    counts = list(AlarmCount.objects.filter(day__gte=since))
    owners = apps.get_model(ORGANIZATION)._default_manager.filter(
        id__in={each.organization_id for each in counts}
    )
    names = dict(owners.values_list("id", "name"))
    by_kind: dict[str, list[AlarmCount]] = defaultdict(list)
    for each in counts:
        by_kind[each.kind].append(each)
    rows = [_row(kind, parts, names) for kind, parts in by_kind.items()]
    return sorted(rows, key=lambda row: (row.last_day, row.count), reverse=True)


def _row(kind: str, counts: Iterable[AlarmCount], names: dict[str, str]) -> AlarmRow:
    sums: dict[str, int] = defaultdict(int)
    days = []
    for each in counts:
        sums[each.organization_id] += each.count
        days.append(each.day)
    owners = [_owner(id_, count, names) for id_, count in sums.items() if id_ != OPERATOR]
    ranked = sorted(owners, key=lambda owner: -owner.count)
    return AlarmRow(kind, describe(kind), sum(sums.values()), max(days), tuple(ranked))


def _owner(id_: str, count: int, names: dict[str, str]) -> AlarmOwner:
    url = row_url("admin:organizations_organization_change", id_) if id_ in names else ""
    return AlarmOwner(names.get(id_, id_), count, url)
