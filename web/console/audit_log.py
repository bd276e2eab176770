"""The organization's audit log: the filtered list, and its CSV export."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from django.http import HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.reading.days import day_of, midnight
from control.api.streaming import csv_bytes, stream_export
from control.audit import selectors
from control.audit.changes import changes_of
from control.audit.models import AuditEvent, ChainLink
from control.audit.pseudonyms import NameResolver
from control.audit.selectors import EventFilters
from control.errors import NotPermitted
from control.permissions import Permission
from web.console.base import PageContext, address, console_page
from web.console.filters import select

BY_MAX = 254
DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Whole UTC days from `first` to `last`, both included, None for no limit; empty strings mean
    any. `before` is the id of the previous page's last event."""

    first: date | None
    last: date | None
    about: str
    by: str
    before: int | None

    @property
    def filters(self) -> EventFilters:
        """The filters as control's selectors take them."""
        return EventFilters(
            about=self.about,
            by=self.by,
            start=midnight(self.first) if self.first else None,
            end=midnight(self.last + timedelta(days=1)) if self.last else None,
        )

    @property
    def is_filtered(self) -> bool:
        """Whether any filter is set."""
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
    """Read the query from a URL; invalid values are ignored."""
    before = parameters.get("before", "")
    about = parameters.get("about", "")
    return AuditQuery(
        first=day_of(parameters.get("from", "")),
        last=day_of(parameters.get("to", "")),
        about=about if about.isascii() and about.replace("_", "").isalpha() else "",
        by=parameters.get("by", "").strip()[:BY_MAX],
        before=int(before) if before.isdecimal() and len(before) <= DIGITS_MAX else None,
    )


ROWS = 50
ABOUT = {
    "member": _("Members"),
    "user": _("Users and sign-ins"),
    "api_key": _("API keys"),
    "project": _("Projects"),
    "sso": _("Single sign-on"),
    "scim": _("SCIM"),
    "organization": _("Organization"),
    "spending_limit": _("Spending limits"),
    "webhook_endpoint": _("Webhook endpoints"),
    "webhook_delivery": _("Webhook deliveries"),
    "alert": _("Alerts"),
    "method": _("Payment methods"),
    "auto_top_up": _("Auto-recharge"),
    "code": _("Promotional codes"),
    "payment": _("Payments"),
    "credit": _("Credit"),
    "invoice": _("Invoices"),
    "billing_profile": _("Billing profile"),
}
"""Subjects of audit events, by the first part of their action."""
COLUMNS = (
    "at", "by", "by_kind", "by_id", "action", "to_kind", "to_id", "to", "details", "address",
    "request_id", "position", "digest",
)  # fmt: skip
"""`position` and `digest` are the event's link in the hash chain; empty for the first seconds."""


@dataclass(frozen=True, slots=True)
class AuditEventRow:
    """An audit event, its actor, its target, and its changes."""

    deed: AuditEvent
    actor: str
    target: str
    changes: list[tuple[str, str]]


@console_page("audit")
def audit(page: PageContext) -> HttpResponse:
    """Show a page of the latest events."""
    require_auditor(page)
    query = parse_query(page.request.GET)
    found = selectors.events(
        page.organization.id, filters=query.filters, before=query.before, limit=ROWS + 1
    )
    older = str(found[ROWS - 1].pk) if len(found) > ROWS else ""
    context = {
        "query": query,
        "today": timezone.now().date(),
        "rows": rows(found[:ROWS]),
        "selects": [select("about", gettext("About"), query.about, ABOUT, gettext("Everything"))],
        **links(page, query, older),
    }
    return page.render("console/audit.html", context)


@console_page("audit")
def audit_csv(page: PageContext) -> HttpResponseBase:
    """Export all events that match the filters as CSV."""
    require_auditor(page)
    filters = parse_query(page.request.GET).filters
    name = f"audit-{page.organization.id}.csv"
    chunks = csv_pages(page.organization.id, filters)
    return stream_export(
        page.request,
        chunks,
        content_type="text/csv; charset=utf-8",
        name=name,
        organization_id=page.organization.id,
    )


def rows(events: list[AuditEvent]) -> list[AuditEventRow]:
    """Return events with the names of the people in them."""
    names = NameResolver(events)
    return [
        AuditEventRow(each, names.actor(each), names.target(each), changes_of(names.details(each)))
        for each in events
    ]


def csv_pages(organization_id: str, filters: EventFilters) -> Iterator[bytes]:
    """Yield a header and the events as CSV (RFC 4180), latest first."""
    yield csv_bytes([COLUMNS])
    for events in selectors.event_pages(organization_id, filters=filters):
        yield csv_bytes(record(row) for row in rows(events))


def record(row: AuditEventRow) -> tuple[str, ...]:
    """Return an event's cells, in the order of `COLUMNS`."""
    event, details = row.deed, "; ".join(f"{name}: {text}" for name, text in row.changes)
    link: ChainLink | None = getattr(event, "link", None)
    return (
        *(event.created_at.isoformat(), row.actor, event.actor_kind, event.actor_id),
        *(event.action, event.target_kind, event.target_id, row.target, details),
        *(event.address or "", event.request_id),
        *((str(link.position), bytes(link.digest).hex()) if link else ("", "")),
    )


def require_auditor(page: PageContext) -> None:
    """Raise NotPermitted if the member may not see the audit log."""
    if not page.may(Permission.AUDIT_READ):
        raise NotPermitted(gettext("Only owners and admins can see the audit log."))


def links(page: PageContext, query: AuditQuery, older: str) -> dict[str, str]:
    """Return the URLs of other pages and of the export."""
    organization = page.organization
    older_url = address(organization, "audit", **query.parameters(before=older)) if older else ""
    return {
        "newest_url": address(organization, "audit", **query.parameters()),
        "older_url": older_url,
        "csv_url": address(organization, "audit_csv", **query.parameters()),
    }
