"""The operator's page of alarms: what happened, what it means, what to do, and the rows behind."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.metering.alarm_words import Behind, Words, words_of
from billing.metering.alarms import OPERATOR
from billing.metering.models import Tally
from billing.metering.waiting import open_letter_count, silent_gateways, unseen_overruns
from control.admin.base import OperatorPage
from control.catalog.selectors import failures
from control.organizations.admin import organization_url
from control.organizations.selectors import organizations
from serving.contract.money import exact_dollars, format_dollars

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

DAYS = (1, 7, 30)
FAILURES_SHOWN = 5
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
    "disputes": ("admin:payments_dispute_changelist", {}),
    "replica failures": ("admin:catalog_replicafailure_changelist", {}),
    "checks": ("admin:following_proof_changelist", {}),
    "days": ("admin:metering_day_changelist", {}),
    "consumers": ("admin:following_cursor_changelist", {}),
    "resent usage": ("admin:metering_resentusage_changelist", {}),
    "counts": ("admin:metering_tally_changelist", {}),
}
LINK_WORDS: dict[Behind, "StrOrPromise"] = {
    "dead letters": _("See the dead letters"),
    "leases": _("See the leases"),
    "events": _("See the events"),
    "faults": _("See the events"),
    "prices": _("See the prices"),
    "engines": _("See the engines"),
    "payments": _("See the payments"),
    "messages": _("See the messages"),
    "disputes": _("See the disputes"),
    "replica failures": _("See the failures"),
    "checks": _("See the checks"),
    "days": _("See the days"),
    "resent usage": _("See the gateways"),
    "consumers": _("See the consumers"),
    "counts": _("See the days"),
}


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """One kind of alarm over some days."""

    kind: str
    words: Words
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
        """How many organizations are not named."""
        return max(len(self.owners) - NAMED_MAX, 0)

    @property
    def link_words(self) -> "StrOrPromise":
        """What the link to the rows behind it says."""
        return LINK_WORDS[self.words.behind]

    @property
    def url(self) -> str:
        """Where the rows behind it are."""
        return address_behind(self.words.behind, self.kind)

    @property
    def tallies_url(self) -> str:
        """Where its counts are, by day and organization."""
        return _address("admin:metering_tally_changelist", kind__exact=self.kind)


@dataclass(frozen=True, slots=True)
class AlarmOwner:
    """How often an organization had a kind of alarm."""

    name: str
    count: int
    url: str
    """The organization's page; empty where it has no row any more."""

    @property
    def shown_count(self) -> str:
        """The count with thousands set apart."""
        return f"{self.count:,}"


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
            failures=failures().filter(noticed_at__gte=now - timedelta(days=days))[:FAILURES_SHOWN],
            failures_url=address_behind("replica failures"),
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
    name, parameters = ADDRESSES[behind]
    own = {"faults": {"fault": kind}, "counts": {"kind__exact": kind}}.get(behind, {})
    return _address(name, **parameters, **own)


def _row(kind: str, tallies: Iterable[Tally], called: dict[str, str]) -> AlarmRow:
    counts: dict[str, int] = defaultdict(int)
    days = []
    for tally in tallies:
        counts[tally.organization_id] += tally.count
        days.append(tally.day)
    owners = [
        AlarmOwner(called.get(id_, id_), count, organization_url(id_) if id_ in called else "")
        for id_, count in counts.items()
        if id_ != OPERATOR
    ]
    ranked = sorted(owners, key=lambda owner: -owner.count)
    return AlarmRow(kind, words_of(kind), sum(counts.values()), max(days), tuple(ranked))


def _address(name: str, **parameters: str) -> str:
    """Return an address of the admin; empty where a page above this room is not installed."""
    try:
        address = reverse(name)
    except NoReverseMatch:
        return ""
    return f"{address}?{urlencode(parameters)}" if parameters else address
