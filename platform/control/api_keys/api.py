"""API keys in the management API, and those of customers for operators."""

from typing import Any

from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.accounts.models import NAME_MAX
from control.api.idempotency import idempotent
from control.api.operator_views import OperatorApiView, OperatorSerializer
from control.api.serializers import ClosedSerializer
from control.api.versions import versioned
from control.api_keys import selectors, services
from control.api_keys.models import SCOPES, ApiKey
from control.db.models import CredentialState
from control.organizations import selectors as tenants
from control.organizations.access import get_access
from control.organizations.validators import NANOS_MAX
from control.permissions import Permission


class PreviousSecretSerializer(ClosedSerializer):
    """A replaced secret, which works until `ends_at`."""

    prefix = serializers.CharField(read_only=True)
    last_four = serializers.CharField(read_only=True)
    ends_at = serializers.DateTimeField(read_only=True)


class ApiKeyFieldsSerializer(ClosedSerializer):
    """The settings of a key. Null means any for `allowed_models` and `allowed_networks` (CIDR), and
    never for `expires_at`. The limit is nano-dollars per UTC month."""

    name = serializers.CharField(max_length=NAME_MAX)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), required=False)
    allowed_models = serializers.ListField(
        child=serializers.CharField(max_length=services.MODEL_NAME_MAX),
        max_length=services.LIST_MAX,
        allow_null=True,
        required=False,
    )
    allowed_networks = serializers.ListField(
        child=serializers.CharField(max_length=64),
        max_length=services.LIST_MAX,
        allow_null=True,
        required=False,
    )
    expires_at = serializers.DateTimeField(allow_null=True, required=False)
    spend_limit_nanos = serializers.IntegerField(
        min_value=0, max_value=NANOS_MAX, allow_null=True, required=False
    )


class ApiKeySerializer(ApiKeyFieldsSerializer):
    """A key without its secret."""

    id = serializers.CharField(read_only=True)
    organization_id = serializers.CharField(read_only=True)
    project_id = serializers.CharField(read_only=True)
    prefix = serializers.CharField(read_only=True)
    last_four = serializers.CharField(read_only=True)
    state = serializers.SerializerMethodField()
    previous_secrets = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField(read_only=True)
    last_used_at = serializers.DateTimeField(read_only=True, allow_null=True)
    revoked_at = serializers.DateTimeField(read_only=True, allow_null=True)

    @extend_schema_field(serializers.ChoiceField(choices=CredentialState.choices))
    def get_state(self, key: ApiKey) -> str:
        """Return whether the key works: `active`, `expired` or `revoked`."""
        return key.state(timezone.now())

    @extend_schema_field(PreviousSecretSerializer(many=True))
    def get_previous_secrets(self, key: ApiKey) -> Any:
        """Return the replaced secrets that still work, the last to end first."""
        now = timezone.now()
        if key.state(now) != CredentialState.ACTIVE:
            return []
        active = [secret for secret in key.old_secrets.all() if secret.ends_at > now]
        active.sort(key=lambda secret: secret.ends_at, reverse=True)
        return PreviousSecretSerializer(active, many=True).data


class CreatedApiKeySerializer(ApiKeySerializer):
    """A key with its secret, which is shown only once."""

    secret = serializers.CharField(read_only=True)


class NewApiKeySerializer(ApiKeyFieldsSerializer):
    """A new key: its name, its project and its settings."""

    project_id = serializers.CharField()


class RotationSerializer(ClosedSerializer):
    """The secret to replace, by its last four characters, and the time until which it still works:
    24 hours from now by default, 30 days at most. A time in the past ends it at once. `expires_at`
    is the key's new expiry, null for never. An expired key needs one, and its old secret ends at
    once."""

    last_four = serializers.CharField(max_length=4)
    previous_secret_ends_at = serializers.DateTimeField(required=False, allow_null=True)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)


class ApiKeyList(GenericAPIView[ApiKey]):
    """The API keys of an organization."""

    serializer_class = ApiKeySerializer

    @extend_schema(operation_id="api_keys_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List keys, including revoked ones, newest first."""
        access = get_access(request, organization_id)
        rows = selectors.keys(access.organization, with_revoked=True)
        page = self.paginate_queryset(rows.prefetch_related("old_secrets"))
        return self.get_paginated_response(ApiKeySerializer(page, many=True).data)

    @idempotent
    @extend_schema(request=NewApiKeySerializer, responses={201: CreatedApiKeySerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Create a key. Only this response contains its secret."""
        access = get_access(request, organization_id, Permission.API_KEYS_WRITE)
        values = NewApiKeySerializer.read(request.data)
        project = tenants.project(access.organization, values.pop("project_id"))
        key, secret = services.create_api_key(actor=access.actor, project=project, **values)
        return Response({**ApiKeySerializer(key).data, "secret": secret}, status=201)


@versioned(ApiKeyFieldsSerializer)
class ApiKeyDetail(GenericAPIView[ApiKey]):
    """One API key."""

    serializer_class = ApiKeySerializer

    def get(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Retrieve a key."""
        access = get_access(request, organization_id)
        return Response(ApiKeySerializer(selectors.key(access.organization, key_id)).data)

    @transaction.atomic
    def patch(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Change settings of a key, all or nothing. Gateways apply them within a second."""
        access = get_access(request, organization_id)
        key = selectors.key(access.organization, key_id)
        values = ApiKeyFieldsSerializer.read(request.data, partial=True)
        has_limit = "spend_limit_nanos" in values
        limit_nanos = values.pop("spend_limit_nanos", None)
        if values or not has_limit:
            key = services.update_api_key(actor=access.actor, key=key, **values)
        if has_limit:
            key = services.set_key_limit(actor=access.actor, key=key, spend_limit_nanos=limit_nanos)
        return Response(ApiKeySerializer(key).data)


class RotateApiKey(GenericAPIView[ApiKey]):
    """The rotation of an API key's secret."""

    serializer_class = ApiKeySerializer

    @idempotent
    @extend_schema(request=RotationSerializer, responses=CreatedApiKeySerializer)
    def post(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Replace a key's secret. Only this response contains the new secret. The old secret works
        until `previous_secret_ends_at`. An expired key is refused with a 409 unless `expires_at`
        gives it a new expiry."""
        access = get_access(request, organization_id, Permission.API_KEYS_WRITE)
        key = selectors.key(access.organization, key_id)
        values = RotationSerializer.read(request.data)
        key, secret = services.rotate_key(actor=access.actor, key=key, **values)
        return Response({**ApiKeySerializer(key).data, "secret": secret})


class RevokePreviousSecrets(GenericAPIView[ApiKey]):
    """The revocation of an API key's replaced secrets."""

    serializer_class = ApiKeySerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Revoke all replaced secrets of a key. They stop working within a second."""
        access = get_access(request, organization_id, Permission.API_KEYS_WRITE)
        key = selectors.key(access.organization, key_id)
        key = services.revoke_previous_secrets(actor=access.actor, key=key)
        return Response(ApiKeySerializer(key).data)


class RevokeApiKey(GenericAPIView[ApiKey]):
    """The revocation of an API key."""

    serializer_class = ApiKeySerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Revoke a key. It stops working within a second, for good."""
        access = get_access(request, organization_id, Permission.API_KEYS_WRITE)
        key = selectors.key(access.organization, key_id)
        key = services.revoke_key(actor=access.actor, key=key)
        return Response(ApiKeySerializer(key).data)


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
