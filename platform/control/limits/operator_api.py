"""Usage tiers and customers' rate limits, for operators, in the management API."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.idempotency import idempotent
from control.api.operator_views import (
    OperatorApiView,
    OperatorSerializer,
    RowIdField,
    RowSerializer,
)
from control.api.versions import versioned
from control.audit.operator_access import record_organization_view
from control.catalog.models import Model
from control.catalog.selectors import model as any_model
from control.limits import rate_limits
from control.limits.models import (
    RATE_LIMIT_FIELDS,
    RateLimitOverride,
    UsageTier,
    UsageTierModelLimit,
)
from control.organizations.models import Organization
from control.organizations.selectors import organization as any_organization
from control.permissions import Permission


class ModelLimitsSerializer(RowSerializer):
    """A usage tier's limits on one model; null means no limit."""

    model_id = serializers.CharField(read_only=True)

    class Meta:
        model = UsageTierModelLimit
        fields = ("model_id", *RATE_LIMIT_FIELDS)


class UsageTierSerializer(RowSerializer):
    """A usage tier: the limits of customers that have paid at least `paid_min_nanos` in all. Null
    means no limit, and all service tiers."""

    model_limits = ModelLimitsSerializer(many=True, read_only=True)

    class Meta:
        model = UsageTier
        fields = (
            "id", "name", "paid_min_nanos", "service_tiers", *RATE_LIMIT_FIELDS, "model_limits",
            "created_at",
        )  # fmt: skip
        read_only_fields = ("id", "created_at")


class RateLimitOverrideSerializer(RowSerializer):
    """A customer's own limits, in place of those of its usage tier: on one model, or (null) on all
    models together. An omitted limit is none."""

    model_id = RowIdField(Model, source="model", required=False, allow_null=True)

    class Meta:
        model = RateLimitOverride
        fields = ("model_id", *RATE_LIMIT_FIELDS)


class EffectiveLimitsSerializer(OperatorSerializer):
    """The limits in force on one model, or (null) on all models together."""

    model_id = serializers.CharField(allow_null=True)
    is_override = serializers.BooleanField(source="is_own")
    requests_per_minute = serializers.IntegerField(
        source="limits.requests_per_minute", allow_null=True
    )
    input_tokens_per_minute = serializers.IntegerField(
        source="limits.input_tokens_per_minute", allow_null=True
    )
    output_tokens_per_minute = serializers.IntegerField(
        source="limits.output_tokens_per_minute", allow_null=True
    )
    concurrent_requests = serializers.IntegerField(
        source="limits.concurrent_requests", allow_null=True
    )


class LimitsInForceSerializer(OperatorSerializer):
    """The limits in force of a customer: on all models together, then model by model."""

    limits = EffectiveLimitsSerializer(many=True)


class AdminRateLimitsSerializer(LimitsInForceSerializer):
    """The usage tier of a customer (null: none), what it paid in all, and its limits in force."""

    usage_tier_id = serializers.CharField(allow_null=True)
    paid_nanos = serializers.IntegerField()


class UsageTierList(OperatorApiView):
    """All usage tiers."""

    serializer_class = UsageTierSerializer
    ordering = ("paid_min_nanos", "id")
    write_permission = Permission.CUSTOMERS_WRITE

    @extend_schema(operation_id="admin_usage_tiers_list")
    def get(self, request: Request) -> Response:
        """List usage tiers, the lowest first."""
        return self.filtered_page(rate_limits.usage_tiers().prefetch_related("model_limits"))

    @idempotent
    @extend_schema(operation_id="admin_usage_tiers_create", responses={201: UsageTierSerializer})
    def post(self, request: Request) -> Response:
        """Add a usage tier. Customers whose payments reach it move to it within minutes."""
        values = UsageTierSerializer.read(request.data)
        tier = rate_limits.create_usage_tier(
            actor=self.actor,
            name=values["name"],
            paid_min_nanos=values["paid_min_nanos"],
            figures=_figures(values),
            service_tiers=values.get("service_tiers"),
        )
        return self.shown(tier, status=201)


@versioned(UsageTierSerializer)
class UsageTierDetail(OperatorApiView):
    """One usage tier."""

    serializer_class = UsageTierSerializer
    write_permission = Permission.CUSTOMERS_WRITE

    @extend_schema(operation_id="admin_usage_tiers_retrieve")
    def get(self, request: Request, tier_id: str) -> Response:
        """Retrieve a usage tier."""
        return self.shown(rate_limits.usage_tier(tier_id))

    @extend_schema(operation_id="admin_usage_tiers_update")
    def patch(self, request: Request, tier_id: str) -> Response:
        """Change a usage tier for all customers in it, all or nothing."""
        changes = UsageTierSerializer.read(request.data, partial=True)
        tier = rate_limits.usage_tier(tier_id)
        return self.shown(
            rate_limits.change_usage_tier(actor=self.actor, tier=tier, changes=changes)
        )


class UsageTierModel(OperatorApiView):
    """A usage tier's limits on one model."""

    serializer_class = UsageTierSerializer
    write_permission = Permission.CUSTOMERS_WRITE

    @extend_schema(operation_id="admin_usage_tiers_set_model", request=ModelLimitsSerializer)
    def put(self, request: Request, tier_id: str, model_id: str) -> Response:
        """Limit one model for a whole tier; an omitted limit is none."""
        return self._set(tier_id, model_id, _figures(ModelLimitsSerializer.read(request.data)))

    @extend_schema(operation_id="admin_usage_tiers_lift_model", responses={204: None})
    def delete(self, request: Request, tier_id: str, model_id: str) -> Response:
        """Lift a tier's limits on one model."""
        self._set(tier_id, model_id, None)
        return Response(status=204)

    def _set(self, tier_id: str, model_id: str, figures: dict[str, int | None] | None) -> Response:
        tier, model = rate_limits.usage_tier(tier_id), any_model(model_id)
        rate_limits.set_usage_tier_model_limit(
            actor=self.actor, tier=tier, model=model, figures=figures
        )
        return self.shown(tier)


@versioned(LimitsInForceSerializer)
class AdminRateLimits(OperatorApiView):
    """The rate limits of a customer."""

    serializer_class = AdminRateLimitsSerializer
    write_permission = Permission.CUSTOMERS_WRITE

    @extend_schema(operation_id="admin_rate_limits_retrieve")
    def get(self, request: Request, organization_id: str) -> Response:
        """Retrieve a customer's usage tier and its limits in force. The view is in the customer's
        audit log."""
        organization = any_organization(organization_id)
        record_organization_view(self.actor, organization.id, page="admin_rate_limits_retrieve")
        return self._shown(organization)

    @extend_schema(operation_id="admin_rate_limits_set", request=RateLimitOverrideSerializer)
    def put(self, request: Request, organization_id: str) -> Response:
        """Give a customer limits of its own, on one model or on all together. Gateways apply them
        within a second."""
        values = RateLimitOverrideSerializer.read(request.data)
        return self._set(organization_id, values.get("model"), _figures(values))

    @extend_schema(
        operation_id="admin_rate_limits_lift",
        parameters=[
            OpenApiParameter("model_id", str, description="All models together if absent.")
        ],
        responses={204: None},
    )
    def delete(self, request: Request, organization_id: str) -> Response:
        """Restore the limits of a customer's usage tier, on one model or on all together."""
        model_id = request.query_params.get("model_id")
        self._set(organization_id, any_model(model_id) if model_id else None, None)
        return Response(status=204)

    def _set(
        self, organization_id: str, model: Model | None, figures: dict[str, int | None] | None
    ) -> Response:
        organization = any_organization(organization_id)
        rate_limits.set_rate_limit_override(
            actor=self.actor, organization=organization, model=model, figures=figures
        )
        return self._shown(organization)

    def _shown(self, organization: Organization) -> Response:
        status = rate_limits.usage_tier_status(organization, with_money=True)
        return self.shown(
            {
                "usage_tier_id": status.tier and status.tier.id,
                "paid_nanos": status.paid_nanos,
                "limits": rate_limits.effective_limits(organization),
            }
        )


def _figures(values: dict[str, Any]) -> dict[str, int | None]:
    return {name: values.get(name) for name in RATE_LIMIT_FIELDS}
