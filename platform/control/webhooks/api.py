"""Webhook endpoints in the management API."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.idempotency import idempotent
from control.api.serializers import ClosedSerializer
from control.api.versions import versioned
from control.egress import URL_MAX
from control.organizations.access import OrganizationAccess, get_access
from control.permissions import Permission
from control.webhooks import selectors, services
from control.webhooks.models import (
    DESCRIPTION_MAX,
    EVENT_TYPES,
    EndpointState,
    WebhookDelivery,
    WebhookEndpoint,
)


class NewWebhookEndpointSerializer(ClosedSerializer):
    """A new endpoint: an `https://` URL that is reachable from the internet."""

    url = serializers.CharField(max_length=URL_MAX)
    description = serializers.CharField(
        max_length=DESCRIPTION_MAX, allow_blank=True, required=False
    )
    event_types = serializers.ListField(
        child=serializers.ChoiceField(choices=list(EVENT_TYPES)),
        min_length=1,
        max_length=len(EVENT_TYPES),
    )


class WebhookEndpointSerializer(NewWebhookEndpointSerializer):
    """An endpoint without its secret. `disabled_reason` is set if the platform disabled it."""

    id = serializers.CharField(read_only=True)
    organization_id = serializers.CharField(read_only=True)
    state = serializers.ChoiceField(choices=EndpointState.choices, read_only=True)
    is_enabled = serializers.BooleanField(required=False)
    disabled_reason = serializers.CharField(read_only=True)
    failing_since = serializers.DateTimeField(read_only=True, allow_null=True)
    created_at = serializers.DateTimeField(read_only=True)


class CreatedWebhookEndpointSerializer(WebhookEndpointSerializer):
    """An endpoint with its secret, which is not shown again."""

    secret = serializers.CharField(read_only=True)


class WebhookSecretSerializer(serializers.Serializer[Any]):
    """A signing secret (Standard Webhooks), which is not shown again."""

    secret = serializers.CharField(read_only=True)


class WebhookDeliverySerializer(serializers.Serializer[Any]):
    """A message to an endpoint and its state; `event_id` is its `webhook-id`."""

    id = serializers.CharField()
    event_id = serializers.CharField()
    event_type = serializers.CharField(source="event.event_type")
    status = serializers.ChoiceField(choices=["waiting", "delivered", "failed"])
    is_repeat = serializers.BooleanField(help_text="Whether a person asked for it again.")
    attempt_count = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)
    failed_at = serializers.DateTimeField(allow_null=True)
    next_at = serializers.DateTimeField(allow_null=True)


class WebhookAttemptSerializer(serializers.Serializer[Any]):
    """One attempt: the response status, or the reason why there was none."""

    created_at = serializers.DateTimeField()
    duration_ms = serializers.IntegerField()
    status = serializers.IntegerField(allow_null=True)
    error = serializers.CharField()


class WebhookDeliveryDetailSerializer(WebhookDeliverySerializer):
    """A delivery with the body that is sent and every attempt."""

    body = serializers.CharField(source="event.body")
    attempts = WebhookAttemptSerializer(many=True)


class WebhookEndpointList(GenericAPIView[WebhookEndpoint]):
    """The webhook endpoints of an organization."""

    serializer_class = WebhookEndpointSerializer

    @extend_schema(operation_id="webhook_endpoints_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List endpoints, the newest first."""
        found = managed(request, organization_id)
        page = self.paginate_queryset(selectors.endpoints(found.organization))
        return self.get_paginated_response(WebhookEndpointSerializer(page, many=True).data)

    @idempotent
    @extend_schema(
        request=NewWebhookEndpointSerializer, responses={201: CreatedWebhookEndpointSerializer}
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Add an endpoint. The secret appears in this response only."""
        found = managed(request, organization_id)
        values = NewWebhookEndpointSerializer.read(request.data)
        endpoint, secret = services.create_endpoint(
            actor=found.actor, organization=found.organization, **values
        )
        return Response({**WebhookEndpointSerializer(endpoint).data, "secret": secret}, status=201)


@versioned(WebhookEndpointSerializer)
class WebhookEndpointDetail(GenericAPIView[WebhookEndpoint]):
    """One webhook endpoint."""

    serializer_class = WebhookEndpointSerializer

    def get(self, request: Request, organization_id: str, endpoint_id: str) -> Response:
        """Show an endpoint."""
        _, endpoint = of_endpoint(request, organization_id, endpoint_id)
        return Response(WebhookEndpointSerializer(endpoint).data)

    def patch(self, request: Request, organization_id: str, endpoint_id: str) -> Response:
        """Change an endpoint; enabling it resets its failures."""
        found, endpoint = of_endpoint(request, organization_id, endpoint_id)
        changes = WebhookEndpointSerializer.read(request.data, partial=True)
        endpoint = services.update_endpoint(actor=found.actor, endpoint=endpoint, **changes)
        return Response(WebhookEndpointSerializer(endpoint).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: str, endpoint_id: str) -> Response:
        """Delete an endpoint."""
        found, endpoint = of_endpoint(request, organization_id, endpoint_id)
        services.delete_endpoint(actor=found.actor, endpoint=endpoint, now=timezone.now())
        return Response(status=204)


class RotateSecret(GenericAPIView[WebhookEndpoint]):
    """The signing secret of an endpoint."""

    serializer_class = WebhookSecretSerializer

    @idempotent
    @extend_schema(request=None, responses=WebhookSecretSerializer)
    def post(self, request: Request, organization_id: str, endpoint_id: str) -> Response:
        """Create a new secret for the endpoint; the previous one also signs for 24 hours."""
        found, endpoint = of_endpoint(request, organization_id, endpoint_id)
        now = timezone.now()
        secret = services.rotate_secret(actor=found.actor, endpoint=endpoint, now=now)
        return Response({"secret": secret})


class SendTest(GenericAPIView[WebhookDelivery]):
    """A test message to the endpoint."""

    serializer_class = WebhookDeliverySerializer

    @idempotent
    @extend_schema(request=None, responses={202: WebhookDeliverySerializer})
    def post(self, request: Request, organization_id: str, endpoint_id: str) -> Response:
        """Send a message of the type `webhook.test`."""
        found, endpoint = of_endpoint(request, organization_id, endpoint_id)
        delivery = services.send_test(actor=found.actor, endpoint=endpoint, now=timezone.now())
        return Response(WebhookDeliverySerializer(delivery).data, status=202)


class WebhookDeliveryList(GenericAPIView[WebhookDelivery]):
    """The messages sent to an endpoint in the last 60 days."""

    serializer_class = WebhookDeliverySerializer

    @extend_schema(operation_id="webhook_endpoints_deliveries_list")
    def get(self, request: Request, organization_id: str, endpoint_id: str) -> Response:
        """List deliveries, the newest first."""
        _, endpoint = of_endpoint(request, organization_id, endpoint_id)
        page = self.paginate_queryset(selectors.deliveries(endpoint))
        return self.get_paginated_response(WebhookDeliverySerializer(page, many=True).data)


class WebhookDeliveryDetail(GenericAPIView[WebhookDelivery]):
    """One delivery."""

    serializer_class = WebhookDeliveryDetailSerializer

    def get(
        self, request: Request, organization_id: str, endpoint_id: str, delivery_id: str
    ) -> Response:
        """Show a delivery with its body and every attempt."""
        _, endpoint = of_endpoint(request, organization_id, endpoint_id)
        found = selectors.delivery(endpoint, delivery_id)
        return Response(WebhookDeliveryDetailSerializer(found).data)


class ResendDelivery(GenericAPIView[WebhookDelivery]):
    """A repeat of a message."""

    serializer_class = WebhookDeliverySerializer

    @idempotent
    @extend_schema(request=None, responses={202: WebhookDeliverySerializer})
    def post(
        self, request: Request, organization_id: str, endpoint_id: str, delivery_id: str
    ) -> Response:
        """Send the message again with the same `webhook-id`."""
        found, endpoint = of_endpoint(request, organization_id, endpoint_id)
        delivery = selectors.delivery(endpoint, delivery_id)
        again = services.resend(actor=found.actor, delivery=delivery, now=timezone.now())
        return Response(WebhookDeliverySerializer(again).data, status=202)


def managed(request: Request, organization_id: str) -> OrganizationAccess:
    """Return the access of a caller who may manage webhooks. Raises ObjectNotFound,
    NotPermitted."""
    return get_access(request, organization_id, Permission.WEBHOOKS_WRITE)


def of_endpoint(
    request: Request, organization_id: str, endpoint_id: str
) -> tuple[OrganizationAccess, WebhookEndpoint]:
    """Return the access and the endpoint of a request. Raises ObjectNotFound, NotPermitted."""
    found = managed(request, organization_id)
    return found, selectors.endpoint(found.organization, endpoint_id)
