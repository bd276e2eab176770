"""Requests in the management API: why one cost what it cost, and all of a period as files."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.reading import exports
from billing.reading.api import CostsQuery, Query, filters_of, moment, parse
from billing.reading.cost_files import cost_csv, cost_jsonl
from billing.reading.receipt_body import ReceiptSerializer, body_of
from billing.reading.receipts import receipt
from billing.reading.selectors import require_filed
from control.api.streaming import stream_export
from control.organizations.access import OF_ORGANIZATION, OrganizationAccess, get_query_access
from control.permissions import Permission

Pages = Callable[..., Iterator[bytes]]
CSV, JSONL = "text/csv; charset=utf-8", "application/jsonl"


class Indifferent(BaseContentNegotiation):
    """A file is what its address says, whatever a client would like best; errors are JSON."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the first renderer, for errors."""
        first = next(iter(renderers))
        return first, first.media_type

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        """Return the first parser; there is no body."""
        return next(iter(parsers), None)


class OneRequest(APIView):
    """One request, for whoever asks why it cost what it cost."""

    @extend_schema(
        operation_id="requests_retrieve",
        parameters=[OF_ORGANIZATION],
        responses=ReceiptSerializer,
    )
    def get(self, request: Request, request_id: uuid.UUID) -> Response:
        """Show the receipt of a request by the id in its `x-request-id`, archived ones too."""
        found = get_query_access(request, Permission.ORGANIZATION_READ)
        with_money = found.may(Permission.BILLING_READ)
        return Response(body_of(receipt(found.organization, request_id, with_money=with_money)))


class File(APIView):
    """What happened in [start_time, end_time), as a file that is sent while it is read."""

    content_negotiation_class = Indifferent
    query = Query
    pages: Pages
    name: str
    content_type = CSV
    action = Permission.ORGANIZATION_READ

    def send(self, request: Request) -> HttpResponseBase:
        """Return the file that was asked for."""
        asked = parse(self.query, request)
        found = get_query_access(request, self.action)
        organization = found.organization
        start = moment(asked["start_time"])
        end = moment(asked["end_time"]) if "end_time" in asked else timezone.now()
        if self.action == Permission.ORGANIZATION_READ:
            require_filed(start, end)
        ending = "csv" if self.content_type == CSV else "jsonl"
        name = f"{self.name}-{organization.id}-{start:%Y-%m-%d}-{end:%Y-%m-%d}.{ending}"
        chunks = type(self).pages(organization, start, end, **self.questions(asked, found))
        return stream_export(
            request._request,
            chunks,
            content_type=self.content_type,
            name=name,
            organization_id=organization.id,
        )

    def questions(self, asked: dict[str, Any], found: OrganizationAccess) -> dict[str, Any]:
        """Return what else was asked, by whom."""
        return {"filters": filters_of(asked)}


class RequestsFile(File):
    """Every request of a period; its charges for roles that may see money."""

    name = "requests"

    def questions(self, asked: dict[str, Any], found: OrganizationAccess) -> dict[str, Any]:
        """Return what else was asked, and whether money is told."""
        return super().questions(asked, found) | {"with_money": found.may(Permission.BILLING_READ)}


class RequestsCsv(RequestsFile):
    """Every request of a period as CSV."""

    pages = exports.csv_pages

    @extend_schema(parameters=[Query], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponseBase:
        """Stream the requests as CSV."""
        return self.send(request)


class RequestsJsonl(RequestsFile):
    """Every request of a period as JSON Lines."""

    pages, content_type = exports.jsonl_pages, JSONL

    @extend_schema(parameters=[Query], responses={(200, JSONL): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponseBase:
        """Stream the requests as JSON Lines."""
        return self.send(request)


class CostFile(File):
    """What each day of a period cost, by group."""

    query, name, action = CostsQuery, "costs", Permission.BILLING_READ

    def questions(self, asked: dict[str, Any], found: OrganizationAccess) -> dict[str, Any]:
        """Return what else was asked."""
        return super().questions(asked, found) | {"group_by": asked["group_by"]}


class CostsCsv(CostFile):
    """Costs by the day as CSV."""

    pages = cost_csv

    @extend_schema(parameters=[CostsQuery], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponseBase:
        """Stream the costs as CSV."""
        return self.send(request)


class CostsJsonl(CostFile):
    """Costs by the day as JSON Lines."""

    pages, content_type = cost_jsonl, JSONL

    @extend_schema(parameters=[CostsQuery], responses={(200, JSONL): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponseBase:
        """Stream the costs as JSON Lines."""
        return self.send(request)
