"""Customers' API keys in the operators' API."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.idempotency import idempotent
from control.api.operator_views import OperatorApiView, OperatorSerializer
from control.api_keys import services
from control.api_keys.api import ApiKeyFieldsSerializer, ApiKeySerializer, CreatedApiKeySerializer
from control.organizations import selectors as tenants
from control.permissions import Permission


class NewCustomerKeySerializer(OperatorSerializer, ApiKeyFieldsSerializer):
    """A customer's new key: its name, its settings, and its project, the oldest by default."""

    project_id = serializers.CharField(required=False)


class AdminApiKeyList(OperatorApiView):
    """The API keys of a customer."""

    serializer_class = ApiKeySerializer
    write_permission = Permission.CUSTOMERS_WRITE

    @idempotent
    @extend_schema(
        operation_id="admin_api_keys_create",
        request=NewCustomerKeySerializer,
        responses={201: CreatedApiKeySerializer},
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Create a key for a customer. Only this response contains its secret. The customer's audit
        log names the operator."""
        values = NewCustomerKeySerializer.read(request.data)
        organization = tenants.organization(organization_id)
        project_id = values.pop("project_id", "")
        project = (
            tenants.project(organization, project_id)
            if project_id
            else tenants.default_project(organization)
        )
        key, secret = services.create_api_key(actor=self.actor, project=project, **values)
        return Response({**ApiKeySerializer(key).data, "secret": secret}, status=201)
