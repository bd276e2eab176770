"""API keys in the management API."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.serializers import ClosedSerializer
from control.keys import checks, selectors, services
from control.keys.models import ApiKey, Mode, Scope
from control.tenants import selectors as tenants
from control.tenants.access import access
from control.tenants.checks import NANOS_MAX
from control.tenants.models import NAME_MAX
from control.tenants.permissions import Action


class KeySerializer(ClosedSerializer):
    """A key without its secret; only the name can be set later."""

    id = serializers.CharField(read_only=True)
    organization_id = serializers.CharField(read_only=True)
    project_id = serializers.CharField(read_only=True)
    name = serializers.CharField(max_length=NAME_MAX)
    mode = serializers.CharField(read_only=True)
    prefix = serializers.CharField(read_only=True)
    last_four = serializers.CharField(read_only=True)
    scopes = serializers.ListField(child=serializers.CharField(), read_only=True)
    models = serializers.ListField(
        child=serializers.CharField(), source="allowed_models", read_only=True, allow_null=True
    )
    networks = serializers.ListField(
        child=serializers.CharField(), source="allowed_networks", read_only=True, allow_null=True
    )
    expires_at = serializers.DateTimeField(read_only=True, allow_null=True)
    spend_limit_nanos = serializers.IntegerField(read_only=True, allow_null=True)
    created_at = serializers.DateTimeField(read_only=True)
    last_used_at = serializers.DateTimeField(read_only=True, allow_null=True)
    revoked_at = serializers.DateTimeField(read_only=True, allow_null=True)


class MintedKeySerializer(KeySerializer):
    """A key with its secret, shown this once."""

    secret = serializers.CharField(read_only=True)


class NewKeySerializer(ClosedSerializer):
    """What makes a key. `models` and `networks` (CIDR) of null mean any; the limit is
    nano-dollars per UTC month."""

    project_id = serializers.CharField()
    name = serializers.CharField(max_length=NAME_MAX)
    mode = serializers.ChoiceField(choices=Mode.choices, required=False)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=Scope.choices), required=False
    )
    models = serializers.ListField(
        child=serializers.CharField(max_length=checks.MODEL_NAME_MAX),
        max_length=checks.LIST_MAX,
        allow_null=True,
        required=False,
    )
    networks = serializers.ListField(
        child=serializers.CharField(max_length=64),
        max_length=checks.LIST_MAX,
        allow_null=True,
        required=False,
    )
    expires_at = serializers.DateTimeField(allow_null=True, required=False)
    spend_limit_nanos = serializers.IntegerField(
        min_value=0, max_value=NANOS_MAX, allow_null=True, required=False
    )


class Keys(GenericAPIView[ApiKey]):
    """The API keys of an organization."""

    serializer_class = KeySerializer

    @extend_schema(operation_id="keys_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List keys, the revoked ones too, the newest first."""
        found = access(request, organization_id)
        page = self.paginate_queryset(selectors.keys(found.organization, with_revoked=True))
        return self.get_paginated_response(KeySerializer(page, many=True).data)

    @extend_schema(request=NewKeySerializer, responses={201: MintedKeySerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Mint a key; the answer is the only place where its secret appears."""
        found = access(request, organization_id, Action.MAKE_KEYS)
        asked = NewKeySerializer.read(request.data)
        project = tenants.project(found.organization, asked.pop("project_id"))
        key, secret = services.mint_key(actor=found.actor, project=project, **asked)
        return Response({**KeySerializer(key).data, "secret": secret}, status=201)


class OneKey(GenericAPIView[ApiKey]):
    """One API key."""

    serializer_class = KeySerializer

    def get(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Show a key."""
        found = access(request, organization_id)
        return Response(KeySerializer(selectors.key(found.organization, key_id)).data)

    def patch(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Rename a key."""
        found = access(request, organization_id, Action.MAKE_KEYS)
        key = selectors.key(found.organization, key_id)
        asked = KeySerializer.read(request.data)
        key = services.rename_key(actor=found.actor, key=key, name=asked["name"])
        return Response(KeySerializer(key).data)


class RevokeKey(GenericAPIView[ApiKey]):
    """The end of an API key."""

    serializer_class = KeySerializer

    @extend_schema(request=None)
    def post(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Revoke a key; it stops working within a second, for good."""
        found = access(request, organization_id, Action.MAKE_KEYS)
        key = selectors.key(found.organization, key_id)
        return Response(KeySerializer(services.revoke_key(actor=found.actor, key=key)).data)
