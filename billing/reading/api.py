"""Usage and costs in the shape of OpenAI's administration API, and at its addresses."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.reading import pages, selectors
from billing.reading.buckets import Bucket, floor
from billing.reading.filters import UsageFilters
from billing.reading.renderer import ExactRenderer
from billing.reading.sums import UsageSums
from control.organizations.access import OF_ORGANIZATION, OrganizationAccess, get_query_access
from control.organizations.models import Organization
from control.permissions import Permission

BUCKETS: dict[str, tuple[Bucket, int, int]] = {
    "1m": ("minute", 60, 1440),
    "1h": ("hour", 24, 168),
    "1d": ("day", 7, 31),
}
"""By `bucket_width`: our word for it, the default and the largest count of buckets on a page."""
COST_DAYS: tuple[Bucket, int, int] = ("day", 7, 180)
COST_GROUPS = ["project_id", "api_key_id", "line_item", "model", "service_tier"]
LATEST_TIME = 4_102_444_800  # the year 2100
NONE = ("",)
"""A filter that nothing passes: no id is empty."""
LISTS = ("project_ids", "api_key_ids", "models", "group_by")


class Names(serializers.ListField):
    """A list of names, empty by default."""

    child = serializers.CharField(max_length=200)


class Query(serializers.Serializer):
    """A period and filters. Lists come as repeated parameters, with or without `[]`."""

    start_time = serializers.IntegerField(min_value=0, max_value=LATEST_TIME)
    end_time = serializers.IntegerField(required=False, min_value=0, max_value=LATEST_TIME)
    limit = serializers.IntegerField(required=False, min_value=1)
    page = serializers.RegexField(r"^page_\d{1,10}$", required=False)
    project_ids = Names(default=list)
    api_key_ids = Names(default=list)


class CompletionsQuery(Query):
    """Usage in buckets of a minute, an hour or a day."""

    bucket_width = serializers.ChoiceField(list(BUCKETS), default="1d")
    models = Names(default=list)
    batch = serializers.BooleanField(allow_null=True, default=None)
    group_by = serializers.ListField(
        child=serializers.ChoiceField(
            ["project_id", "api_key_id", "model", "service_tier", "batch"]
        ),
        default=list,
    )


class CostsQuery(Query):
    """Money by the day; a line item is a variant such as `penstock-demo:bf16`, a model its public
    name, a service tier one of `priority`, `default`, `flex`, `batch`."""

    bucket_width = serializers.ChoiceField(["1d"], default="1d")
    models = Names(default=list)
    group_by = serializers.ListField(child=serializers.ChoiceField(COST_GROUPS), default=list)


class CompatibleUsage(APIView):
    """The usage of an organization, where OpenAI's administration clients ask for it."""

    renderer_classes = (ExactRenderer,)

    @extend_schema(
        operation_id="compatible_usage_retrieve",
        parameters=[OF_ORGANIZATION, CompletionsQuery],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        """Return a page of usage, as `/organizations/{organization_id}/usage` does."""
        query = parse(CompletionsQuery, request)
        return usage_page(get_query_access(request), query)


class CompatibleCosts(APIView):
    """The costs of an organization, where OpenAI's administration clients ask for them."""

    renderer_classes = (ExactRenderer,)

    @extend_schema(
        operation_id="compatible_costs_retrieve",
        parameters=[OF_ORGANIZATION, CostsQuery],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        """Return a page of costs, as `/organizations/{organization_id}/costs` does."""
        query = parse(CostsQuery, request)
        return costs_page(get_query_access(request, Permission.BILLING_READ), query)


def usage_page(access: OrganizationAccess, query: Mapping[str, Any]) -> Response:
    """Return the page of buckets of usage."""
    return answer(access.organization, query, BUCKETS[query["bucket_width"]], pages.usage_result)


def costs_page(access: OrganizationAccess, query: Mapping[str, Any]) -> Response:
    """Return the page of days of costs."""
    return answer(access.organization, query, COST_DAYS, pages.cost_result)


def parse(kind: type[Query], request: Request) -> dict[str, Any]:
    """Return the checked parameters. Raises ValidationError, which names the bad one."""
    given = request.query_params
    data: dict[str, Any] = {name: given[name] for name in given if not name.endswith("[]")}
    for name in LISTS:
        values = given.getlist(name) + given.getlist(f"{name}[]")
        data.pop(name, None)
        if values:
            data[name] = values
    query = kind(data=data)
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)


def answer(
    organization: Organization,
    asked: Mapping[str, Any],
    width: tuple[Bucket, int, int],
    result: Callable[[UsageSums, Mapping[str, Any]], dict[str, Any]],
) -> Response:
    """Return the page of buckets that was asked for."""
    bucket, default, most = width
    start = moment(
        int(asked["page"].removeprefix("page_")) if "page" in asked else asked["start_time"]
    )
    end = moment(asked["end_time"]) if "end_time" in asked else timezone.now()
    page = pages.page_of(floor(start, bucket), end, bucket, min(asked.get("limit", default), most))
    if page is None:
        return Response(pages.body([], None))
    points = selectors.usage_series(
        organization,
        page.start,
        page.end,
        bucket,
        group_by=pages.dimensions(asked["group_by"]),
        filters=filters_of(asked),
    )
    return Response(pages.render(page, pages.label(points, asked["group_by"]), result))


def filters_of(asked: Mapping[str, Any]) -> UsageFilters:
    """Return the filter; names of unknown models match nothing."""
    names = asked.get("models", [])
    found = selectors.model_ids(names)
    tiers = {None: (), True: ("batch",), False: ("priority", "default", "flex")}
    return UsageFilters(
        project_ids=tuple(asked["project_ids"]),
        key_ids=tuple(asked["api_key_ids"]),
        model_ids=NONE if names and not found else found,
        tiers=tiers[asked.get("batch")],
    )


def moment(seconds: int) -> datetime:
    """Return the moment of Unix time, UTC."""
    return datetime.fromtimestamp(seconds, UTC)
