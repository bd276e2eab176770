"""Webhook endpoints in the management API."""

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.once import once
from control.tenants.access import OF_ORGANIZATION, Access, access_asked
from control.tenants.permissions import Action
from control.webhooks import selectors, services
from control.webhooks.models import Delivery, Endpoint
from control.webhooks.serializers import (
    CreatedEndpointSerializer,
    DeliverySerializer,
    EndpointSerializer,
    NewEndpointSerializer,
    SecretSerializer,
    WholeDeliverySerializer,
)


@extend_schema(parameters=[OF_ORGANIZATION])
class Endpoints(GenericAPIView[Endpoint]):
    """The webhook endpoints of an organization."""

    serializer_class = EndpointSerializer

    @extend_schema(operation_id="webhook_endpoints_list")
    def get(self, request: Request) -> Response:
        """List endpoints, the newest first."""
        found = managed(request)
        page = self.paginate_queryset(selectors.endpoints(found.organization))
        return self.get_paginated_response(EndpointSerializer(page, many=True).data)

    @once
    @extend_schema(request=NewEndpointSerializer, responses={201: CreatedEndpointSerializer})
    def post(self, request: Request) -> Response:
        """Add an endpoint; the answer is the only place where its secret appears."""
        found = managed(request)
        asked = NewEndpointSerializer.read(request.data)
        endpoint, secret = services.create_endpoint(
            actor=found.actor, organization=found.organization, **asked
        )
        return Response({**EndpointSerializer(endpoint).data, "secret": secret}, status=201)


@extend_schema(parameters=[OF_ORGANIZATION])
class OneEndpoint(GenericAPIView[Endpoint]):
    """One webhook endpoint."""

    serializer_class = EndpointSerializer

    def get(self, request: Request, endpoint_id: str) -> Response:
        """Show an endpoint."""
        _, endpoint = of_endpoint(request, endpoint_id)
        return Response(EndpointSerializer(endpoint).data)

    def patch(self, request: Request, endpoint_id: str) -> Response:
        """Change an endpoint; enabling it forgets its failures."""
        found, endpoint = of_endpoint(request, endpoint_id)
        changes = EndpointSerializer.read(request.data, partial=True)
        endpoint = services.update_endpoint(actor=found.actor, endpoint=endpoint, **changes)
        return Response(EndpointSerializer(endpoint).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, endpoint_id: str) -> Response:
        """End an endpoint for good."""
        found, endpoint = of_endpoint(request, endpoint_id)
        services.delete_endpoint(actor=found.actor, endpoint=endpoint, now=timezone.now())
        return Response(status=204)


@extend_schema(parameters=[OF_ORGANIZATION])
class RotateSecret(GenericAPIView[Endpoint]):
    """A new secret."""

    serializer_class = SecretSerializer

    @once
    @extend_schema(request=None, responses=SecretSerializer)
    def post(self, request: Request, endpoint_id: str) -> Response:
        """Give the endpoint a new secret; the one before signs along for 24 hours."""
        found, endpoint = of_endpoint(request, endpoint_id)
        now = timezone.now()
        secret = services.rotate_secret(actor=found.actor, endpoint=endpoint, now=now)
        return Response({"secret": secret})


@extend_schema(parameters=[OF_ORGANIZATION])
class SendTest(GenericAPIView[Delivery]):
    """A message to try the endpoint with."""

    serializer_class = DeliverySerializer

    @once
    @extend_schema(request=None, responses={202: DeliverySerializer})
    def post(self, request: Request, endpoint_id: str) -> Response:
        """Send a message of the kind `webhook.test`."""
        found, endpoint = of_endpoint(request, endpoint_id)
        delivery = services.send_test(actor=found.actor, endpoint=endpoint, now=timezone.now())
        return Response(DeliverySerializer(delivery).data, status=202)


@extend_schema(parameters=[OF_ORGANIZATION])
class Deliveries(GenericAPIView[Delivery]):
    """What was sent to an endpoint in the last 60 days."""

    serializer_class = DeliverySerializer

    @extend_schema(operation_id="webhook_deliveries_list")
    def get(self, request: Request, endpoint_id: str) -> Response:
        """List deliveries, the newest first."""
        _, endpoint = of_endpoint(request, endpoint_id)
        page = self.paginate_queryset(selectors.deliveries(endpoint))
        return self.get_paginated_response(DeliverySerializer(page, many=True).data)


@extend_schema(parameters=[OF_ORGANIZATION])
class OneDelivery(GenericAPIView[Delivery]):
    """One delivery."""

    serializer_class = WholeDeliverySerializer

    def get(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        """Show a delivery, its body and every call."""
        _, endpoint = of_endpoint(request, endpoint_id)
        found = selectors.delivery(endpoint, delivery_id)
        return Response(WholeDeliverySerializer(found).data)


@extend_schema(parameters=[OF_ORGANIZATION])
class Redeliver(GenericAPIView[Delivery]):
    """The same message again."""

    serializer_class = DeliverySerializer

    @once
    @extend_schema(request=None, responses={202: DeliverySerializer})
    def post(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        """Send the message again, under its own `webhook-id`."""
        found, endpoint = of_endpoint(request, endpoint_id)
        delivery = selectors.delivery(endpoint, delivery_id)
        again = services.redeliver(actor=found.actor, delivery=delivery, now=timezone.now())
        return Response(DeliverySerializer(again).data, status=202)


def managed(request: Request) -> Access:
    """Return the access of somebody who may manage webhooks. Raises ObjectNotFound,
    NotPermitted."""
    return access_asked(request, Action.MANAGE_WEBHOOKS)


def of_endpoint(request: Request, endpoint_id: str) -> tuple[Access, Endpoint]:
    """Return the access and the endpoint of a request. Raises ObjectNotFound, NotPermitted."""
    found = managed(request)
    return found, selectors.endpoint(found.organization, endpoint_id)
