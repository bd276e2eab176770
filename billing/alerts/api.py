"""Spending limits and alerts in the management API."""

from typing import Any

from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from billing.alerts import selectors, services
from billing.alerts.models import Alert
from billing.alerts.selectors import Standing
from control.api.idempotency import idempotent
from control.api.pagination import SequencePagination
from control.api.serializers import ClosedSerializer
from control.api.versions import versioned
from control.limits import spending as limits
from control.limits.models import LimitPeriod
from control.limits.spending import SpendingLimitRow
from control.limits.spending import spending_limits as limits_of
from control.organizations.access import OrganizationAccess, get_access
from control.organizations.validators import NANOS_MAX
from control.permissions import Permission

ENFORCEMENTS = ("hard", "soft")


class Percents(serializers.ListField):
    """Percentages of a spending limit."""

    child = serializers.IntegerField(min_value=1, max_value=services.PERCENT_MAX)


class LimitOwnerSerializer(serializers.Serializer[Any]):
    """Who is limited."""

    kind = serializers.ChoiceField(["organization", "project", "key"])
    id = serializers.CharField()
    name = serializers.CharField()


class SpendingLimitSerializer(serializers.Serializer[Any]):
    """A limit of spending and how its running period stands. A hard one refuses, a soft one tells;
    periods begin at midnight UTC, weeks on Monday."""

    id = serializers.CharField(source="limit.budget_id")
    owner = serializers.SerializerMethodField()
    period = serializers.ChoiceField(LimitPeriod.choices, source="limit.period")
    limit_nanos = serializers.IntegerField(source="limit.limit_nanos")
    enforcement = serializers.ChoiceField(ENFORCEMENTS, source="limit.enforcement")
    alert_percents = Percents()
    spent_nanos = serializers.IntegerField()
    held_nanos = serializers.IntegerField()
    starts_at = serializers.DateTimeField()
    renews_at = serializers.DateTimeField()

    @extend_schema_field(LimitOwnerSerializer)
    def get_owner(self, standing: Standing) -> dict[str, str]:
        """Return who is limited."""
        limit = standing.limit
        return {"kind": limit.kind, "id": limit.limited_id, "name": limit.name}


class NewSpendingLimitSerializer(ClosedSerializer):
    """A new limit; `owner_id` is that of the organization, a project or an API key."""

    owner_id = serializers.CharField(max_length=64)
    period = serializers.ChoiceField(LimitPeriod.choices)
    limit_nanos = serializers.IntegerField(min_value=0, max_value=NANOS_MAX)
    enforcement = serializers.ChoiceField(ENFORCEMENTS, default="hard")
    alert_percents = Percents(max_length=services.PERCENTS_MAX, required=False)


class SpendingLimitChangesSerializer(ClosedSerializer):
    """What may be changed of a spending limit."""

    limit_nanos = serializers.IntegerField(min_value=0, max_value=NANOS_MAX, required=False)
    enforcement = serializers.ChoiceField(ENFORCEMENTS, required=False)
    alert_percents = Percents(max_length=services.PERCENTS_MAX, required=False)


class AlertSerializer(serializers.Serializer[Any]):
    """Something that was told: a limit's percentage, a low balance, unusual spending."""

    id = serializers.IntegerField()
    kind = serializers.CharField()
    spending_limit_id = serializers.CharField(source="budget_id")
    rule = serializers.CharField()
    starts_at = serializers.DateTimeField()
    created_at = serializers.DateTimeField()
    figures = serializers.JSONField()


class AlertSettingsSerializer(ClosedSerializer):
    """When to tell of the balance and of spending; null turns one off."""

    low_balance_nanos = serializers.IntegerField(
        min_value=1, max_value=NANOS_MAX, allow_null=True, required=False
    )
    low_runway_days = serializers.IntegerField(
        min_value=1, max_value=365, allow_null=True, required=False
    )
    unusual_factor = serializers.IntegerField(
        min_value=2, max_value=100, allow_null=True, required=False
    )


class SpendingLimitPagination(SequencePagination):
    """The organization's own limits first, then its projects', then its keys'."""

    def key(self, row: SpendingLimitRow) -> str:
        """Return a limit's id."""
        return row.budget_id


class SpendingLimitList(GenericAPIView[Any]):
    """The spending limits of an organization."""

    serializer_class = SpendingLimitSerializer
    pagination_class = SpendingLimitPagination

    @extend_schema(
        operation_id="spending_limits_list",
        responses=SpendingLimitSerializer(many=True),
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's own spending limits, its projects' and its keys'."""
        found = get_access(request, organization_id, Permission.BILLING_READ)
        page = self.paginate_queryset(limits_of(found.organization)) or []
        standings = selectors.standings_of(found.organization, page, timezone.now())
        return self.get_paginated_response(SpendingLimitSerializer(standings, many=True).data)

    @idempotent
    @extend_schema(
        request=NewSpendingLimitSerializer,
        responses={201: SpendingLimitSerializer},
    )
    @transaction.atomic
    def post(self, request: Request, organization_id: str) -> Response:
        """Limit an organization, a project or a key by the month, the week or the day."""
        found, now = get_access(request, organization_id, Permission.LIMITS_WRITE), timezone.now()
        asked = NewSpendingLimitSerializer.read(request.data)
        made = limits.add_limit(
            actor=found.actor,
            organization=found.organization,
            owner_id=asked["owner_id"],
            period=asked["period"],
            limit_nanos=asked["limit_nanos"],
            is_hard=asked["enforcement"] == "hard",
            now=now,
        )
        choose(found, made.budget_id, asked)
        return shown(found, made.budget_id, status=201)


@versioned(SpendingLimitChangesSerializer)
class SpendingLimitDetail(GenericAPIView[Any]):
    """One spending limit of an organization."""

    serializer_class = SpendingLimitSerializer

    def get(self, request: Request, organization_id: str, limit_id: str) -> Response:
        """Show a spending limit and how its running period stands."""
        return shown(get_access(request, organization_id, Permission.BILLING_READ), limit_id)

    @extend_schema(request=SpendingLimitChangesSerializer)
    @transaction.atomic
    def patch(self, request: Request, organization_id: str, limit_id: str) -> Response:
        """Change a spending limit, at once: what is held beyond a lowered limit is called back."""
        found = get_access(request, organization_id, Permission.LIMITS_WRITE)
        asked = SpendingLimitChangesSerializer.read(request.data)
        enforcement = asked.get("enforcement")
        limits.change_limit(
            actor=found.actor,
            organization=found.organization,
            budget_id=limit_id,
            limit_nanos=asked.get("limit_nanos"),
            is_hard=None if enforcement is None else enforcement == "hard",
            now=timezone.now(),
        )
        choose(found, limit_id, asked)
        return shown(found, limit_id)

    @extend_schema(responses={204: None})
    @transaction.atomic
    def delete(self, request: Request, organization_id: str, limit_id: str) -> Response:
        """Lift a limit."""
        found = get_access(request, organization_id, Permission.LIMITS_WRITE)
        limits.remove_limit(
            actor=found.actor,
            organization=found.organization,
            budget_id=limit_id,
            now=timezone.now(),
        )
        services.forget_percents(organization=found.organization, budget_id=limit_id)
        return Response(status=204)


class AlertList(GenericAPIView[Alert]):
    """What an organization was told."""

    serializer_class = AlertSerializer

    @extend_schema(operation_id="alerts_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List what was told, the newest first."""
        found = get_access(request, organization_id, Permission.BILLING_READ)
        page = self.paginate_queryset(selectors.alerts(found.organization))
        return self.get_paginated_response(AlertSerializer(page, many=True).data)


@versioned(AlertSettingsSerializer)
class AlertSettingsDetail(GenericAPIView[Any]):
    """When an organization is told of its balance and its spending."""

    serializer_class = AlertSettingsSerializer

    def get(self, request: Request, organization_id: str) -> Response:
        """Show what was chosen, or the defaults."""
        found = get_access(request, organization_id, Permission.BILLING_READ)
        return Response(AlertSettingsSerializer(selectors.alert_settings(found.organization)).data)

    def patch(self, request: Request, organization_id: str) -> Response:
        """Choose; what is not named stays as it is."""
        found = get_access(request, organization_id, Permission.LIMITS_WRITE)
        before = AlertSettingsSerializer(selectors.alert_settings(found.organization)).data
        asked = AlertSettingsSerializer.read(request.data, partial=True)
        chosen = services.choose_alerts(
            actor=found.actor, organization=found.organization, **(dict(before) | asked)
        )
        return Response(AlertSettingsSerializer(chosen).data)


def choose(found: OrganizationAccess, limit_id: str, asked: dict[str, Any]) -> None:
    """Keep the percentages that were asked for, if any were."""
    if "alert_percents" in asked:
        services.choose_percents(
            actor=found.actor,
            organization=found.organization,
            budget_id=limit_id,
            percents=asked["alert_percents"],
        )


def shown(found: OrganizationAccess, limit_id: str, *, status: int = 200) -> Response:
    """Return one limit as it stands. Raises ObjectNotFound."""
    standing = selectors.standing(found.organization, limit_id, timezone.now())
    return Response(SpendingLimitSerializer(standing).data, status=status)
