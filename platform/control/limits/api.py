"""Rate limits in the management API: the limits in force, how much of them is used, and the limits
that members set for projects and keys."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from control.api.serializers import ClosedSerializer
from control.api.versions import versioned
from control.api_keys import selectors as keys
from control.limits import rate_limits
from control.limits.live_usage import LimitSubject, LimitUsage, read_usage
from control.limits.models import LIMIT_MAX, RATE_LIMIT_FIELDS, UsageTier
from control.organizations import selectors as tenants
from control.organizations.access import OrganizationAccess, get_access
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
