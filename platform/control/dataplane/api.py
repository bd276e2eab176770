"""Inference requests that failed, in the management API."""

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.operator_views import OperatorSerializer
from control.api.serializers import ClosedSerializer
from control.dataplane import failed_requests
from control.dataplane.models import FailedRequest
from control.organizations.access import get_access


class FailedRequestFilterSerializer(OperatorSerializer):
    """Filters of failed requests. The times are the first moment and the first moment after."""

    project_id = serializers.CharField(required=False)
    key_id = serializers.CharField(required=False)
    variant_id = serializers.CharField(required=False)
    status = serializers.IntegerField(required=False, min_value=400, max_value=599)
    code = serializers.CharField(required=False)
    client_request_id = serializers.CharField(required=False)
    start_time = serializers.DateTimeField(required=False)
    end_time = serializers.DateTimeField(required=False)


class FailedRequestSerializer(ClosedSerializer):
    """A request that was refused or failed, and what the client was told. `variant_id` is empty if
    it did not name a model that its key may use."""

    request_id = serializers.UUIDField()
    project_id = serializers.CharField()
    key_id = serializers.CharField()
    variant_id = serializers.CharField()
    received_at = serializers.DateTimeField()
    endpoint = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    param = serializers.CharField()
    message = serializers.CharField()
    client_request_id = serializers.CharField()


class FailedRequestList(GenericAPIView[FailedRequest]):
    """The failed requests of an organization."""

    serializer_class = FailedRequestSerializer
    ordering = ("-request_id",)

    @extend_schema(operation_id="failed_requests_list", parameters=[FailedRequestFilterSerializer])
    def get(self, request: Request, organization_id: str) -> Response:
        """List the inference requests of the last 30 days that were refused or failed, newest
        first: at most 1,000 an hour. Requests without a valid key are not listed."""
        access = get_access(request, organization_id)
        sent = request.query_params.dict()
        filters = FailedRequestFilterSerializer.read(
            {name: sent[name] for name in sent.keys() - {"limit", "after"}}
        )
        found = failed_requests.failed_requests(access.organization, **filters)
        page = self.paginate_queryset(found)
        return self.get_paginated_response(FailedRequestSerializer(page, many=True).data)


class FailedRequestDetail(GenericAPIView[FailedRequest]):
    """One failed request of an organization."""

    serializer_class = FailedRequestSerializer

    @extend_schema(operation_id="failed_requests_retrieve")
    def get(self, request: Request, organization_id: str, request_id: uuid.UUID) -> Response:
        """Retrieve a failed request, by the id in its `x-request-id`."""
        access = get_access(request, organization_id)
        found = failed_requests.failed_request(access.organization, request_id)
        return Response(FailedRequestSerializer(found).data)
