"""The audit: who did what in the organization, and when."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.http import HttpResponse, HttpResponseBase
from django.utils import timezone

from billing.reading.exports import csv_bytes
from control.api.streaming import stream_export
from control.audit import selectors
from control.audit.models import AuditEvent, ChainLink
from control.audit.pseudonyms import NameResolver
from control.audit.selectors import EventFilters
from control.errors import NotPermitted
from control.permissions import Permission
from web.console.audit.query import AuditQuery, parse_query
from web.console.audit.words import changes
from web.console.filters import select
from web.console.page import ConsolePage, address, console_page

ROWS = 50
ABOUT = {
    "member": "Members",
    "session": "Sign-ins",
    "factor": "Ways to sign in",
    "password": "Passwords",
    "key": "API keys",
    "project": "Projects",
    "sso": "Single sign-on",
    "scim": "SCIM",
    "organization": "The organization",
    "limit": "Limits",
    "webhook": "Webhooks",
    "method": "Payment methods",
    "payment": "Payments",
    "credit": "Credit",
    "invoice": "Invoices",
    "billing_profile": "Billing profile",
}
"""What there are deeds about, by the noun of the action."""
COLUMNS = (
    "at", "by", "by_kind", "by_id", "action", "to_kind", "to_id", "details", "address",
    "request_id", "position", "digest",
)  # fmt: skip
"""`position` and `digest` are the deed's place in the chain; empty for the first seconds."""


@dataclass(frozen=True, slots=True)
class DeedRow:
    """A deed, who did it, and what it changed."""

    deed: AuditEvent
    actor: str
    changes: list[tuple[str, str]]


@console_page("audit")
def audit(page: ConsolePage) -> HttpResponse:
    """The latest deeds, a page at a time."""
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
        "selects": [select("about", "About", query.about, ABOUT, "Everything")],
        **links(page, query, older),
    }
    return page.render("console/audit.html", context)


@console_page("audit")
def audit_csv(page: ConsolePage) -> HttpResponseBase:
    """The deeds that the filters leave, all of them, as CSV."""
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


def rows(deeds: list[AuditEvent]) -> list[DeedRow]:
    """Return deeds with the names of the people in them."""
    names = NameResolver(deeds)
    return [DeedRow(each, names.actor(each), changes(names.details(each))) for each in deeds]


def csv_pages(organization_id: str, filters: EventFilters) -> Iterator[bytes]:
    """Yield deeds as CSV (RFC 4180), the latest first, the header before them."""
    yield csv_bytes([COLUMNS])
    for deeds in selectors.event_pages(organization_id, filters=filters):
        yield csv_bytes(record(row) for row in rows(deeds))


def record(row: DeedRow) -> tuple[str, ...]:
    """Return a deed's cells."""
    deed, told = row.deed, "; ".join(f"{name}: {text}" for name, text in row.changes)
    link: ChainLink | None = getattr(deed, "link", None)
    return (
        *(deed.created_at.isoformat(), row.actor, deed.actor_kind, deed.actor_id),
        *(deed.action, deed.target_kind, deed.target_id, told),
        *(deed.address or "", deed.request_id),
        *((str(link.position), bytes(link.digest).hex()) if link else ("", "")),
    )


def require_auditor(page: ConsolePage) -> None:
    """Let pass who may see what was done. Raises NotPermitted."""
    if not page.may(Permission.AUDIT_READ):
        raise NotPermitted("An owner or admin can see the audit.")


def links(page: ConsolePage, query: AuditQuery, older: str) -> dict[str, str]:
    """Return the addresses of other pages and of the file."""
    here = page.organization
    return {
        "newest_url": address(here, "audit", **query.parameters()),
        "older_url": address(here, "audit", **query.parameters(before=older)) if older else "",
        "csv_url": address(here, "audit_csv", **query.parameters()),
    }
