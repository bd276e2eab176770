"""The operator's page of alarms: what happened, what it means, what to do, and the rows behind."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.metering.alarm_words import Behind, Words, words_of
from billing.metering.alarms import OPERATOR
from billing.metering.models import Tally
from billing.metering.waiting import open_letter_count, silent_gateways, unseen_overruns
from control.admin.base import OperatorPage
from control.organizations.selectors import organizations
from serving.contract.money import exact_dollars, format_dollars

DAYS = (1, 7, 30)
NAMED_MAX = 3
"""Organizations named for each kind; the list has them all."""


ADDRESSES: dict[Behind, tuple[str, dict[str, str]]] = {
    "dead letters": ("admin:metering_deadletter_changelist", {"state": "open"}),
    "leases": ("admin:credit_lease_changelist", {}),
    "events": ("admin:metering_usageevent_changelist", {"within": "7"}),
    "faults": ("admin:metering_usageevent_changelist", {"within": "7"}),
    "prices": ("admin:pricing_pricebook_changelist", {}),
    "engines": ("admin:economics_reconciliation", {"alarms": "1"}),
    "payments": ("admin:payments_standing", {}),
    "messages": ("admin:outbox_outboxmessage_changelist", {"state": "given_up"}),
}


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """One kind of alarm over some days."""

    kind: str
    words: Words
    count: int
    last_day: date
    owners: tuple[tuple[str, int], ...]
    """How often for each organization, by name, the most first; none for the operator's own."""

    @property
    def shown_count(self) -> str:
        """The count with thousands set apart."""
        return f"{self.count:,}"

    @property
    def named(self) -> str:
        """For whom, in words."""
        words = [f"{name} ({count:,})" for name, count in self.owners[:NAMED_MAX]]
        more = len(self.owners) - NAMED_MAX
        if more <= 0:
            return ", ".join(words)
        return gettext("%(names)s and %(count)d more") % {
            "names": ", ".join(words),
            "count": more,
        }

    @property
    def url(self) -> str:
        """Where the rows behind it are; empty where there are none to see."""
        return address_behind(self.words.behind, self.kind)

    @property
    def tallies_url(self) -> str:
        """Where its counts are, by day and organization."""
        return _address("admin:metering_tally_changelist", kind__exact=self.kind)


class AlarmsPage(OperatorPage):
    """Alarms of the last days by kind, and what waits for a person."""

    title = _("Alarms")
    purpose = _(
        "What needs attention: alarms by kind, with what each means and what to do, and what waits"
        " for an operator."
    )
    permission_required = "metering.view_tally"
    template_name = "metering/alarms.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the alarms, in words."""
        now = timezone.now()
        asked = self.request.GET.get("days", "")
        days = next((days for days in DAYS if str(days) == asked), 7)
        rows = alarm_rows(now.date() - timedelta(days=days - 1))
        has_overruns = any(row.kind == "lease_overrun" for row in rows)
        return super().get_context_data(
            **kwargs,
            days=days,
            choices=DAYS,
            rows=rows,
            may_release=self.request.user.has_perm("credit.change_lease"),
            letter_count=open_letter_count(),
            letters_url=address_behind("dead letters"),
            overruns=[
                {"lease": lease, "over": format_dollars(lease.settled_nanos - lease.granted_nanos)}
                for lease in (unseen_overruns(now - timedelta(days=days)) if has_overruns else ())
            ],
            silent=[
                {
                    "gateway": gateway,
                    "held": format_dollars(gateway.held_nanos),
                    "held_exact": exact_dollars(gateway.held_nanos),
                    "url": _address("admin:credit_lease_changelist", q=gateway.gateway_id),
                }
                for gateway in silent_gateways(now)
            ],
        )


def alarm_rows(since: date) -> list[AlarmRow]:
    """Return the alarms counted since a day, the latest first, then the most frequent."""
    tallies = list(Tally.objects.filter(day__gte=since))
    called = dict(
        organizations()
        .filter(id__in={tally.organization_id for tally in tallies})
        .values_list("id", "name")
    )
    by_kind: dict[str, list[Tally]] = defaultdict(list)
    for tally in tallies:
        by_kind[tally.kind].append(tally)
    rows = [_row(kind, parts, called) for kind, parts in by_kind.items()]
    return sorted(rows, key=lambda row: (row.last_day, row.count), reverse=True)


def address_behind(behind: Behind, kind: str = "") -> str:
    """Return where the rows behind a kind of alarm are listed."""
    found = ADDRESSES.get(behind)
    if found is None:
        return ""
    name, parameters = found
    return _address(name, **parameters, **({"fault": kind} if behind == "faults" else {}))


def _row(kind: str, tallies: Iterable[Tally], called: dict[str, str]) -> AlarmRow:
    counts: dict[str, int] = defaultdict(int)
    days = []
    for tally in tallies:
        counts[tally.organization_id] += tally.count
        days.append(tally.day)
    owners = [(called.get(id_, id_), count) for id_, count in counts.items() if id_ != OPERATOR]
    ranked = sorted(owners, key=lambda owner: -owner[1])
    return AlarmRow(kind, words_of(kind), sum(counts.values()), max(days), tuple(ranked))


def _address(name: str, **parameters: str) -> str:
    """Return an address of the admin; empty where a page above this room is not installed."""
    try:
        address = reverse(name)
    except NoReverseMatch:
        return ""
    return f"{address}?{urlencode(parameters)}" if parameters else address
