"""Requests: the list, the receipt of a request, and exports."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext

from billing.following.errors import NotAtHandError
from billing.reading import exports, receipts
from billing.reading import selectors as reading
from billing.reading.days import day_of, midnight
from billing.reading.filters import UsageFilters
from billing.reading.sums import Usage
from control.api.streaming import stream_export
from control.dataplane import failed_requests
from control.dataplane.models import FailedRequest
from control.errors import ObjectNotFound
from serving.contract.ids import id_floor
from web.console.base import PageContext, address, console_page
from web.console.code_samples import CodeSamples
from web.console.failed_requests import REASONS, row_of
from web.console.filters import Select, select
from web.console.labels import IdLabels

FAILED = "failed"
"""The filter by outcome for requests that were refused or failed."""
DAYS_OF_A_FILE = 30
"""The days that an export covers by default."""


@dataclass(frozen=True, slots=True)
class RequestQuery:
    """Whole UTC days from `first` to `last`, both included, None for no limit; empty ids mean any.
    `before` is the last request of the previous page. `outcome` is FAILED for requests that were
    refused or failed, of which `code` is the error code."""

    first: date | None
    last: date | None
    model: str
    key: str
    project: str
    before: uuid.UUID | None
    price: str = ""
    outcome: str = ""
    code: str = ""

    @property
    def start(self) -> datetime | None:
        """The start of the period."""
        return midnight(self.first) if self.first else None

    @property
    def end(self) -> datetime | None:
        """The end of the period, exclusive."""
        return midnight(self.last + timedelta(days=1)) if self.last else None

    @property
    def filters(self) -> UsageFilters:
        """The filters as billing's selectors take them."""
        return UsageFilters(
            project_ids=tuple(filter(None, [self.project])),
            key_ids=tuple(filter(None, [self.key])),
            model_ids=tuple(filter(None, [self.model])),
            price_ids=tuple(filter(None, [self.price])),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether any filter is set."""
        return bool(self.parameters())

    @property
    def is_failed(self) -> bool:
        """Whether requests that were refused or failed are wanted."""
        return self.outcome == FAILED

    def within_days(self, today: date) -> "RequestQuery":
        """Return the query with both days set: until today, and thirty days by default."""
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
            "outcome": self.outcome,
            "code": self.code,
        } | changes
        return {name: value for name, value in values.items() if value}


def parse_query(parameters: Mapping[str, str]) -> RequestQuery:
    """Read the query from a URL; invalid values are ignored."""
    return RequestQuery(
        first=day_of(parameters.get("from", "")),
        last=day_of(parameters.get("to", "")),
        model=parameters.get("model", ""),
        key=parameters.get("key", ""),
        project=parameters.get("project", ""),
        before=event_id_of(parameters.get("before", "")),
        price=parameters.get("price", ""),
        outcome=FAILED if parameters.get("outcome") == FAILED else "",
        code=parameters.get("code", ""),
    )


def event_id_of(text: str) -> uuid.UUID | None:
    """Return the id in `text`; None if it is invalid."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


ROWS = 50
SHOWN_MAX = 100
"""Characters of something searched for that a message repeats."""
UUID_WITH_TIME = 7
PENDING = timedelta(minutes=2)
"""The time after a request in which its receipt counts as pending, not missing."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request with the names of its model and key."""

    event: Usage
    model: str
    key: str
    url: str


@console_page("requests")
def requests(page: PageContext) -> HttpResponse:
    """Show a page of the latest requests, or find one by its id."""
    if wanted := page.request.GET.get("id", "").strip():
        return _find(page, wanted)
    query, names, now = parse_query(page.request.GET), IdLabels(page), timezone.now()
    if query.is_failed:
        return _failed_page(page, query, names, now)
    found = reading.recent_events(
        page.organization,
        now=now,
        filters=query.filters,
        start=query.start,
        end=query.end,
        before=query.before,
        limit=ROWS + 1,
        with_money=page.may_see_money,
    )
    older = str(found[ROWS - 1].event_id) if len(found) > ROWS else ""
    context = {
        "query": query,
        "today": now.date(),
        "rows": rows_of(page, found[:ROWS], names, with_keys=True),
        "selects": selects(query, names),
        "first_call": CodeSamples(page, names),
        **links(page, query, older),
    }
    return page.render("console/requests.html", context)


def _find(page: PageContext, wanted: str) -> HttpResponse:
    """Open the request with an id."""
    event_id = event_id_of(wanted)
    if event_id is not None:
        return redirect(page.url("receipt", str(event_id)))
    messages.error(
        page.request,
        gettext(
            "“%(id)s” is not a request ID. It is in the header x-request-id of each response,"
            " such as 01a2203c-3fdd-70a2-bba1-c99467519a59."
        )
        % {"id": wanted[:SHOWN_MAX]},
    )
    return redirect(page.url("requests"))


def _failed_page(
    page: PageContext, query: RequestQuery, names: IdLabels, now: datetime
) -> HttpResponse:
    """Show a page of the latest requests that were refused or failed."""
    found = list(_failed(page, query, names)[: ROWS + 1])
    older = str(found[ROWS - 1].request_id) if len(found) > ROWS else ""
    context = {
        "query": query,
        "today": now.date(),
        "rows": [row_of(page, each, names) for each in found[:ROWS]],
        "selects": selects(query, names),
        "first_call": CodeSamples(page, names),
        **links(page, query, older),
    }
    return page.render("console/failed_requests.html", context)


def _failed(page: PageContext, query: RequestQuery, names: IdLabels) -> QuerySet[FailedRequest]:
    wanted = {
        "received_at__gte": query.start,
        "received_at__lt": query.end,
        "request_id__lt": query.before,
        "project_id": query.project,
        "key_id": query.key,
        "code": query.code,
        "variant_id__in": names.variants_of(query.model) if query.model else None,
    }
    filters = {name: value for name, value in wanted.items() if value not in (None, "")}
    return failed_requests.failed_requests(page.organization, **filters)


@console_page("requests")
def requests_csv(page: PageContext) -> HttpResponseBase:
    """Export all requests of some days as CSV."""
    return file_of(page, exports.csv_pages, "text/csv; charset=utf-8", "csv")


@console_page("requests")
def requests_jsonl(page: PageContext) -> HttpResponseBase:
    """Export all requests of some days as JSON Lines."""
    return file_of(page, exports.jsonl_pages, "application/jsonl", "jsonl")


@console_page("requests")
def receipt(page: PageContext, event_id: uuid.UUID) -> HttpResponse:
    """Show the receipt of a request: how its cost was computed, and why it failed if it did."""
    names = IdLabels(page)
    row = failed_requests.failed_requests(page.organization, request_id=event_id).first()
    failed = None if row is None else row_of(page, row, names)
    try:
        found = receipts.receipt(page.organization, event_id, with_money=page.may_see_money)
    except NotAtHandError as error:
        return render_not_at_hand(page, error)
    except ObjectNotFound:
        if failed is not None:
            return page.render("console/failed_request.html", {"failed": failed})
        if not may_still_come(event_id, timezone.now()):
            raise
        return page.render("console/receipt_pending.html", status=404)
    context = {
        "failed": failed,
        "receipt": found,
        "event": found.event,
        "pace": pace(found.event),
        "names": names.of_event(found.event),
    }
    return page.render("console/receipt.html", context)


def render_not_at_hand(page: PageContext, refused: NotAtHandError) -> HttpResponse:
    """Return a 503 page: an archived day cannot be read now."""
    return page.render("console/not_at_hand.html", {"day": refused.day}, status=503)


def file_of(
    page: PageContext, pages: Callable[..., Iterator[bytes]], content_type: str, ending: str
) -> HttpResponseBase:
    """Return an export for the filters in the URL, by default of the last 30 days."""
    query = parse_query(page.request.GET).within_days(timezone.now().date())
    try:
        if query.start is not None and query.end is not None:
            reading.require_filed(query.start, query.end)
    except NotAtHandError as error:
        return render_not_at_hand(page, error)
    name = f"requests-{page.organization.id}-{query.first}-{query.last}.{ending}"
    chunks = pages(
        page.organization,
        query.start,
        query.end,
        filters=query.filters,
        with_money=page.may_see_money,
    )
    return stream_export(
        page.request,
        chunks,
        content_type=content_type,
        name=name,
        organization_id=page.organization.id,
    )


def may_still_come(event_id: uuid.UUID, now: datetime) -> bool:
    """Return whether an id is so recent that its request may not be ingested yet."""
    if event_id.version != UUID_WITH_TIME:
        return False
    return id_floor(now - PENDING) < event_id < id_floor(now + PENDING)


def rows_of(
    page: PageContext, events: list[Usage], names: IdLabels, *, with_keys: bool = False
) -> list[RequestRow]:
    """Return the events with their names and the URLs of their receipts."""
    keys = names.keys if with_keys and events else {}
    return [
        RequestRow(
            event=event,
            model=names.variants.get(event.supply.variant_id, event.supply.variant_id),
            key=keys.get(event.caller.key_id, event.caller.key_id),
            url=page.url("receipt", str(event.event_id)),
        )
        for event in events
    ]


def selects(query: RequestQuery, names: IdLabels) -> list[Select]:
    """Return the drop-downs of the page."""
    failed_only = [
        select(
            "code",
            gettext("Reason"),
            query.code,
            {code: reason.label for code, reason in REASONS.items()},
            gettext("All reasons"),
        )
    ]
    return [
        select(
            "outcome",
            gettext("Outcome"),
            query.outcome,
            {FAILED: gettext("Refused or failed")},
            gettext("Served"),
        ),
        *(failed_only if query.is_failed else ()),
        select("model", gettext("Model"), query.model, names.models, gettext("All models")),
        select("key", gettext("API key"), query.key, names.keys, gettext("All keys")),
        select(
            "project", gettext("Project"), query.project, names.projects, gettext("All projects")
        ),
    ]


def links(page: PageContext, query: RequestQuery, older: str) -> dict[str, str]:
    """Return the URLs of other pages and of the exports."""

    def link(section: str = "requests", **changes: str) -> str:
        return address(page.organization, section, **query.parameters(**changes))

    return {
        "newest_url": link(),
        "older_url": link(before=older) if older else "",
        "csv_url": link("requests_csv"),
        "jsonl_url": link("requests_jsonl"),
    }


def pace(event: Usage) -> float | None:
    """Return output tokens per second after the first; None if the response is too short."""
    if event.ttft_seconds is None or event.output_tokens < 2:
        return None
    spent_seconds = event.total_seconds - event.ttft_seconds
    return (event.output_tokens - 1) / spent_seconds if spent_seconds > 0 else None
