"""API keys in the management API."""

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
from control.api.serializers import ClosedSerializer
from control.api_keys import selectors, services
from control.api_keys import services as checks
from control.api_keys.models import ApiKey, Scope
from control.organizations import selectors as tenants
from control.organizations.access import get_access
from control.organizations.validators import NANOS_MAX
from control.permissions import Permission


class PreviousSecretSerializer(ClosedSerializer):
    """What is left of a replaced secret, which works until it ends."""

    prefix = serializers.CharField(read_only=True)
    last_four = serializers.CharField(read_only=True)
    ends_at = serializers.DateTimeField(read_only=True)


class ApiKeyFieldsSerializer(ClosedSerializer):
    """What of a key can be set, at first and later. `models` and `networks` (CIDR) of null mean
    any, `expires_at` of null never; the limit is nano-dollars per UTC month."""

    name = serializers.CharField(max_length=NAME_MAX)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=Scope.choices), required=False
    )
    models = serializers.ListField(
        child=serializers.CharField(max_length=checks.MODEL_NAME_MAX),
        max_length=checks.LIST_MAX,
        allow_null=True,
        required=False,
        source="allowed_models",
    )
    networks = serializers.ListField(
        child=serializers.CharField(max_length=64),
        max_length=checks.LIST_MAX,
        allow_null=True,
        required=False,
        source="allowed_networks",
    )
    expires_at = serializers.DateTimeField(allow_null=True, required=False)
    spend_limit_nanos = serializers.IntegerField(
        min_value=0, max_value=NANOS_MAX, allow_null=True, required=False
    )

    @classmethod
    def read(cls, data: Any, *, partial: bool = False) -> dict[str, Any]:
        """Return the validated values by the names that services know. Raises ValidationError."""
        values = super().read(data, partial=partial)
        return {name.removeprefix("allowed_"): value for name, value in values.items()}


class ApiKeySerializer(ApiKeyFieldsSerializer):
    """A key without its secret."""

    id = serializers.CharField(read_only=True)
    organization_id = serializers.CharField(read_only=True)
    project_id = serializers.CharField(read_only=True)
    prefix = serializers.CharField(read_only=True)
    last_four = serializers.CharField(read_only=True)
    old_secrets = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField(read_only=True)
    last_used_at = serializers.DateTimeField(read_only=True, allow_null=True)
    revoked_at = serializers.DateTimeField(read_only=True, allow_null=True)

    @extend_schema_field(PreviousSecretSerializer(many=True))
    def get_old_secrets(self, key: ApiKey) -> Any:
        """Return the replaced secrets that work still, the last to end first."""
        now = timezone.now()
        living = [one for one in key.old_secrets.all() if one.ends_at > now]
        living.sort(key=lambda one: one.ends_at, reverse=True)
        return PreviousSecretSerializer(living, many=True).data


class CreatedApiKeySerializer(ApiKeySerializer):
    """A key with its secret, shown this once."""

    secret = serializers.CharField(read_only=True)


class NewApiKeySerializer(ApiKeyFieldsSerializer):
    """What makes a key: its name and its project, and what shall hold for it."""

    project_id = serializers.CharField()


class RotationSerializer(ClosedSerializer):
    """Which secret is to be replaced, by its last four characters, and until when it works all the
    same: 24 hours from now by default, 30 days at most, at once if that is past."""

    last_four = serializers.CharField(max_length=4)
    old_secret_ends_at = serializers.DateTimeField(required=False, allow_null=True)


class ApiKeys(GenericAPIView[ApiKey]):
    """The API keys of an organization."""

    serializer_class = ApiKeySerializer

    @extend_schema(operation_id="keys_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List keys, the revoked ones too, the newest first."""
        found = get_access(request, organization_id)
        rows = selectors.keys(found.organization, with_revoked=True)
        page = self.paginate_queryset(rows.prefetch_related("old_secrets"))
        return self.get_paginated_response(ApiKeySerializer(page, many=True).data)

    @idempotent
    @extend_schema(request=NewApiKeySerializer, responses={201: CreatedApiKeySerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Mint a key; the answer is the only place where its secret appears."""
        found = get_access(request, organization_id, Permission.API_KEYS_WRITE)
        asked = NewApiKeySerializer.read(request.data)
        project = tenants.project(found.organization, asked.pop("project_id"))
        key, secret = services.create_api_key(actor=found.actor, project=project, **asked)
        return Response({**ApiKeySerializer(key).data, "secret": secret}, status=201)


class OneApiKey(GenericAPIView[ApiKey]):
    """One API key."""

    serializer_class = ApiKeySerializer

    def get(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Show a key."""
        found = get_access(request, organization_id)
        return Response(ApiKeySerializer(selectors.key(found.organization, key_id)).data)

    @transaction.atomic
    def patch(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Change what is named of a key, all or nothing; gateways hold to it within a second."""
        found = get_access(request, organization_id)
        key = selectors.key(found.organization, key_id)
        asked = ApiKeyFieldsSerializer.read(request.data, partial=True)
        limit = {name: asked.pop(name) for name in ("spend_limit_nanos",) if name in asked}
        if asked or not limit:
            key = services.update_api_key(actor=found.actor, key=key, **asked)
        if limit:
            key = services.set_key_limit(actor=found.actor, key=key, **limit)
        return Response(ApiKeySerializer(key).data)


class RotateApiKey(GenericAPIView[ApiKey]):
    """Another secret for an API key."""

    serializer_class = ApiKeySerializer

    @idempotent
    @extend_schema(request=RotationSerializer, responses=CreatedApiKeySerializer)
    def post(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Replace a key's secret; the answer is the only place where the new one appears. The old
        one works until `old_secret_ends_at`."""
        found = get_access(request, organization_id, Permission.API_KEYS_WRITE)
        key = selectors.key(found.organization, key_id)
        asked = RotationSerializer.read(request.data)
        key, secret = services.rotate_key(actor=found.actor, key=key, **asked)
        return Response({**ApiKeySerializer(key).data, "secret": secret})


class RevokePreviousSecrets(GenericAPIView[ApiKey]):
    """The end of an API key's replaced secrets."""

    serializer_class = ApiKeySerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, key_id: str) -> Response:
        """End all replaced secrets of a key; they stop working within a second."""
        found = get_access(request, organization_id, Permission.API_KEYS_WRITE)
        key = selectors.key(found.organization, key_id)
        return Response(
            ApiKeySerializer(services.revoke_previous_secrets(actor=found.actor, key=key)).data
        )


class RevokeApiKey(GenericAPIView[ApiKey]):
    """The end of an API key."""

    serializer_class = ApiKeySerializer

    @idempotent
    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Revoke a key; it stops working within a second, for good."""
        found = get_access(request, organization_id, Permission.API_KEYS_WRITE)
        key = selectors.key(found.organization, key_id)
        return Response(ApiKeySerializer(services.revoke_key(actor=found.actor, key=key)).data)
