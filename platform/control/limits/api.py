"""Rate limits in the management API: the limits in force, how much of them is used, the limits
that members set for projects and keys, and for operators the usage tiers and customers' limits."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.idempotency import idempotent
from control.api.operator_views import (
    OperatorApiView,
    OperatorSerializer,
    RowIdField,
    RowSerializer,
)
from control.api.serializers import ClosedSerializer
from control.api.versions import versioned
from control.api_keys import selectors as keys
from control.audit.operator_access import record_organization_view
from control.catalog.models import Model
from control.catalog.selectors import model as any_model
from control.limits import rate_limits
from control.limits.live_usage import LimitSubject, LimitUsage, read_usage
from control.limits.models import (
    LIMIT_MAX,
    RATE_LIMIT_FIELDS,
    RateLimitOverride,
    UsageTier,
    UsageTierModelLimit,
)
from control.organizations import selectors as tenants
from control.organizations.access import OrganizationAccess, get_access
from control.organizations.models import Organization
from control.organizations.selectors import organization as any_organization
from control.permissions import Permission
from serving.contract.limits import MEASURES
from serving.contract.units import TIERS


def _figure() -> serializers.IntegerField:
    return serializers.IntegerField(
        min_value=1, max_value=LIMIT_MAX, allow_null=True, required=False
    )


class LimitsSerializer(ClosedSerializer):
    """Four rate limits; null means no limit. Cached input tokens do not count."""

    requests_per_minute = _figure()
    input_tokens_per_minute = _figure()
    output_tokens_per_minute = _figure()
    concurrent_requests = _figure()


class UseSerializer(serializers.Serializer[LimitUsage]):
    """One limit and how much of it is used now: more than the limit is a debt, null is unknown."""

    measure = serializers.ChoiceField(MEASURES)
    limit = serializers.IntegerField()
    used = serializers.IntegerField(allow_null=True)


class InForceSerializer(serializers.Serializer[Any]):
    """Limits of an organization, on all models together or on one."""

    model = serializers.CharField(allow_null=True)
    set_by = serializers.ChoiceField(["tier", "operator"])
    limits = LimitsSerializer()
    use = UseSerializer(many=True)


class TierSerializer(serializers.Serializer[UsageTier]):
    """A usage tier, reached by the total amount paid."""

    name = serializers.CharField()
    paid_min_nanos = serializers.IntegerField()
    service_tiers = serializers.ListField(
        child=serializers.ChoiceField(TIERS), source="usable_service_tiers"
    )


class OrganizationRatesSerializer(serializers.Serializer[Any]):
    """The usage tier of an organization and the limits in force."""

    tier = TierSerializer(allow_null=True)
    paid_nanos = serializers.IntegerField(
        allow_null=True, help_text="Null for roles that may not see money."
    )
    next_tier = TierSerializer(allow_null=True)
    in_force = InForceSerializer(many=True)


class OwnRatesSerializer(serializers.Serializer[Any]):
    """The limits that members set for a project or a key, and how much of them is used now."""

    limits = LimitsSerializer()
    use = UseSerializer(many=True)


class RateLimitsDetail(GenericAPIView[Any]):
    """The rate limits of an organization."""

    serializer_class = OrganizationRatesSerializer

    def get(self, request: Request, organization_id: str) -> Response:
        """Show the organization's usage tier, its limits and how much of them is used."""
        found = get_access(request, organization_id)
        organization = found.organization
        status = rate_limits.usage_tier_status(
            organization, with_money=found.may(Permission.BILLING_READ)
        )
        rows = rate_limits.effective_limits(organization)
        uses = read_usage(LimitSubject(organization.id, row.limits, row.model_id) for row in rows)
        shown = {
            "tier": status.tier,
            "paid_nanos": status.paid_nanos,
            "next_tier": status.next_tier,
            "in_force": [
                {
                    "model": row.model_name or None,
                    "set_by": "operator" if row.is_own else "tier",
                    "limits": row.limits,
                    "use": use,
                }
                for row, use in zip(rows, uses, strict=True)
            ],
        }
        return Response(OrganizationRatesSerializer(shown).data)


class OwnRateLimits(GenericAPIView[Any]):
    """The rate limits of a project or a key, within its organization's."""

    serializer_class = OwnRatesSerializer

    def shown(self, found: OrganizationAccess, owner_id: str) -> Response:
        """Return the limits that members set, and how much of them is used."""
        limits = rate_limits.own_limits(found.organization, owner_id)
        [use] = read_usage([LimitSubject(owner_id, limits)])
        return Response(OwnRatesSerializer({"limits": limits, "use": use}).data)

    def changed(self, request: Request, found: OrganizationAccess, owner_id: str) -> Response:
        """Set the limits in the request body."""
        values = LimitsSerializer.read(request.data, partial=True)
        figures = {name: values[name] for name in RATE_LIMIT_FIELDS if name in values}
        rate_limits.set_own_limits(
            actor=found.actor,
            organization=found.organization,
            owner_id=owner_id,
            figures=figures,
        )
        return self.shown(found, owner_id)


@versioned(LimitsSerializer, part="limits")
class ProjectRateLimits(OwnRateLimits):
    """The rate limits of a project."""

    def get(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Show the limits that members set for a project."""
        found = get_access(request, organization_id)
        return self.shown(found, tenants.project(found.organization, project_id).id)

    @extend_schema(request=LimitsSerializer)
    def patch(self, request: Request, organization_id: str, project_id: str) -> Response:
        """Limit a project; omitted limits stay, null lifts one. Gateways apply it within a
        second."""
        found = get_access(request, organization_id, Permission.LIMITS_WRITE)
        owner = tenants.project(found.organization, project_id)
        return self.changed(request, found, owner.id)


@versioned(LimitsSerializer, part="limits")
class KeyRateLimits(OwnRateLimits):
    """The rate limits of an API key."""

    def get(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Show the limits that members set for a key."""
        found = get_access(request, organization_id)
        return self.shown(found, keys.key(found.organization, key_id).id)

    @extend_schema(request=LimitsSerializer)
    def patch(self, request: Request, organization_id: str, key_id: str) -> Response:
        """Limit a key; omitted limits stay, null lifts one. Gateways apply it within a second."""
        found = get_access(request, organization_id, Permission.LIMITS_WRITE)
        owner = keys.key(found.organization, key_id)
        return self.changed(request, found, owner.id)


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
