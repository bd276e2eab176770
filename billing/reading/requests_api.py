"""Usage, costs and requests of an organization in the management API: in pages, as files, and the
receipt of one request."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.reading import exports
from billing.reading.api import (
    CompletionsQuery,
    CostsQuery,
    Query,
    costs_page,
    filters_of,
    moment,
    parse,
    usage_page,
)
from billing.reading.cost_files import cost_csv, cost_jsonl
from billing.reading.receipt_body import ReceiptSerializer, body_of
from billing.reading.receipts import receipt
from billing.reading.renderer import ExactRenderer
from billing.reading.selectors import require_filed
from control.api.streaming import stream_export
from control.organizations.access import OrganizationAccess, get_access
from control.permissions import Permission

CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
REQUEST_FILES: dict[str, Callable[..., Iterator[bytes]]] = {
    "csv": exports.csv_pages,
    "jsonl": exports.jsonl_pages,
}
COST_FILES: dict[str, Callable[..., Iterator[bytes]]] = {"csv": cost_csv, "jsonl": cost_jsonl}
FILES = {(200, media): OpenApiTypes.STR for media in ("text/csv", "application/jsonl")}


class FormatNegotiation(BaseContentNegotiation):
    """Leaves the form of an answer to the query's `format`; errors are JSON."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the first renderer."""
        first = next(iter(renderers))
        return first, first.media_type

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        """Return the first parser; there is no body."""
        return next(iter(parsers), None)


class RequestsQuery(Query):
    """Requests of [start_time, end_time)."""

    format = serializers.ChoiceField(list(REQUEST_FILES), default="csv")


class CostsFormatQuery(CostsQuery):
    """Costs in pages of days, or all of [start_time, end_time) as a file."""

    format = serializers.ChoiceField(["json", *COST_FILES], default="json")


class OrganizationUsage(APIView):
    """The usage of an organization."""

    renderer_classes = (ExactRenderer,)

    @extend_schema(
        operation_id="usage_retrieve",
        parameters=[CompletionsQuery],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """Return a page of usage: tokens and requests in buckets of a minute, an hour or a day."""
        query = parse(CompletionsQuery, request)
        return usage_page(get_access(request, organization_id), query)


class OrganizationCosts(APIView):
    """The costs of an organization."""

    renderer_classes = (ExactRenderer,)
    content_negotiation_class = FormatNegotiation

    @extend_schema(
        operation_id="costs_retrieve",
        parameters=[CostsFormatQuery],
        responses={(200, "application/json"): OpenApiTypes.OBJECT, **FILES},
    )
    def get(self, request: Request, organization_id: str) -> HttpResponseBase:
        """Return a page of costs by the day, or a file of all days."""
        query = parse(CostsFormatQuery, request)
        access = get_access(request, organization_id, Permission.BILLING_READ)
        if query["format"] == "json":
            return costs_page(access, query)
        return _file(request, access, query, "costs", COST_FILES, group_by=query["group_by"])


class RequestList(APIView):
    """The requests of an organization."""

    content_negotiation_class = FormatNegotiation

    @extend_schema(operation_id="requests_export", parameters=[RequestsQuery], responses=FILES)
    def get(self, request: Request, organization_id: str) -> HttpResponseBase:
        """Return every request of a period as a file, with charges for roles that may see
        money."""
        query = parse(RequestsQuery, request)
        access = get_access(request, organization_id)
        require_filed(*_period(query))
        with_money = access.may(Permission.BILLING_READ)
        return _file(request, access, query, "requests", REQUEST_FILES, with_money=with_money)


class RequestDetail(APIView):
    """One request of an organization."""

    @extend_schema(operation_id="requests_retrieve", responses=ReceiptSerializer)
    def get(self, request: Request, organization_id: str, request_id: uuid.UUID) -> Response:
        """Retrieve the receipt of a request, by the id in its `x-request-id`; archived requests
        have one too."""
        access = get_access(request, organization_id)
        with_money = access.may(Permission.BILLING_READ)
        return Response(body_of(receipt(access.organization, request_id, with_money=with_money)))


def _period(query: dict[str, Any]) -> tuple[Any, Any]:
    end = moment(query["end_time"]) if "end_time" in query else timezone.now()
    return moment(query["start_time"]), end


def _file(
    request: Request,
    access: OrganizationAccess,
    query: dict[str, Any],
    name: str,
    files: dict[str, Callable[..., Iterator[bytes]]],
    **options: Any,
) -> HttpResponseBase:
    """Return a file of the period, which is sent while it is read."""
    start, end = _period(query)
    organization, ending = access.organization, query["format"]
    return stream_export(
        request._request,
        files[ending](organization, start, end, filters=filters_of(query), **options),
        content_type=CONTENT_TYPES[ending],
        name=f"{name}-{organization.id}-{start:%Y-%m-%d}-{end:%Y-%m-%d}.{ending}",
        organization_id=organization.id,
    )
