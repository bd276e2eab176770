"""Requests, and the receipt of each: tokens times price is the amount."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.http import HttpResponse
from django.utils import timezone

from billing.metering import selectors as metering
from billing.metering.models import UsageEvent
from control.errors import NotFound
from web.console.filters import Select, select
from web.console.first_call import FirstCall
from web.console.names import Names, names_for
from web.console.page import Page, address, console_page

ROWS = 50
FILTERS = ("model", "key", "project")
UUID_WITH_TIME = 7
ON_ITS_WAY = timedelta(minutes=2)
"""How long after a request its receipt is awaited rather than called missing."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request with the names of what it touched."""

    event: UsageEvent
    model: str
    key: str
    url: str

    @property
    def uncached_input_tokens(self) -> int:
        """Input tokens at the full price."""
        return self.event.input_tokens - self.event.cached_input_tokens


@console_page("requests")
def requests(page: Page) -> HttpResponse:
    """The latest requests, a page at a time."""
    chosen = {name: page.request.GET.get(name, "") for name in FILTERS}
    names = names_for(page.organization)
    before = event_id_of(page.request.GET.get("before", ""))
    events = metering.recent_events(
        page.organization, filters=filters_of(chosen), before=before, limit=ROWS + 1
    )
    older = events[ROWS - 1].event_id if len(events) > ROWS else None
    context = {
        "rows": rows_of(page, events[:ROWS], names),
        "selects": selects(chosen, names),
        "filtered": any(chosen.values()),
        "before": before,
        "newest_url": address(page.organization, "requests", **chosen),
        "older_url": older and address(page.organization, "requests", **chosen, before=str(older)),
        "first_call": FirstCall(page, names.models),
    }
    return page.render("console/requests.html", context)


@console_page("requests")
def receipt(page: Page, event_id: uuid.UUID) -> HttpResponse:
    """Why one request cost what it cost."""
    try:
        found = metering.receipt(page.organization, event_id)
    except NotFound:
        if not may_still_come(event_id, timezone.now()):
            raise
        return page.render("console/receipt_pending.html", status=404)
    names = names_for(page.organization)
    context = {
        "receipt": found,
        "event": found.event,
        "pace": pace(found.event),
        "names": names.of_event(found.event),
    }
    return page.render("console/receipt.html", context)


def may_still_come(event_id: uuid.UUID, now: datetime) -> bool:
    """Tell whether an id is so young that its request may be on its way to the books."""
    if event_id.version != UUID_WITH_TIME:
        return False
    made_at = datetime.fromtimestamp((event_id.int >> 80) / 1000, UTC)
    return abs(now - made_at) < ON_ITS_WAY


def filters_of(chosen: dict[str, str]) -> metering.UsageFilters:
    """Return the drop-downs' values as billing asks for them."""
    return metering.UsageFilters(
        project_ids=tuple(filter(None, [chosen["project"]])),
        key_ids=tuple(filter(None, [chosen["key"]])),
        model_ids=tuple(filter(None, [chosen["model"]])),
    )


def event_id_of(text: str) -> uuid.UUID | None:
    """Return the id in a page's address; what is no id means the newest page."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def rows_of(page: Page, events: list[UsageEvent], names: Names) -> list[RequestRow]:
    """Return the events with their names and the addresses of their receipts."""
    return [
        RequestRow(
            event=event,
            model=names.variants.get(event.variant_id, event.variant_id),
            key=names.keys.get(event.key_id, event.key_id),
            url=page.url("receipt", str(event.event_id)),
        )
        for event in events
    ]


def selects(chosen: dict[str, str], names: Names) -> list[Select]:
    """Return the drop-downs of the page."""
    return [
        select("model", "Model", chosen["model"], names.models, "All models"),
        select("key", "API key", chosen["key"], names.keys, "All keys"),
        select("project", "Project", chosen["project"], names.projects, "All projects"),
    ]


def pace(event: UsageEvent) -> float | None:
    """Return output tokens per second after the first, None for answers too short to tell."""
    if event.ttft_seconds is None or event.output_tokens < 2:
        return None
    spent_seconds = event.total_seconds - event.ttft_seconds
    return (event.output_tokens - 1) / spent_seconds if spent_seconds > 0 else None
