"""The credit balance and the credit grants of a customer in the management API: for the customer,
and for operators."""

from collections.abc import Sequence
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from billing.credit import selectors
from billing.credit.credits import Credit, credit_by_grant
from billing.credit.models import CreditGrant, GrantKind, GrantState
from billing.credit.selectors import LimitStatus
from billing.credit.services.grants import GRANT_MAX_NANOS, KEY_MAX, grant_credit
from control.api.idempotency import HEADER
from control.api.operator_views import OperatorApiView, OperatorSerializer, RowSerializer
from control.api.serializers import ClosedSerializer
from control.api_keys.selectors import key
from control.audit.operator_access import record_organization_view
from control.errors import InvalidValue
from control.organizations.access import get_access
from control.organizations.selectors import organization as any_organization
from control.organizations.selectors import project
from control.permissions import Permission
from serving.contract.budget import kind_of, limited_id, period_of

ONCE = OpenApiParameter(
    HEADER,
    str,
    OpenApiParameter.HEADER,
    required=True,
    description=f"Names the grant, in 1 to {KEY_MAX} characters: sent again, it is made once.",
)


class CreditGrantSerializer(RowSerializer):
    """Credit given to a customer, in nano-dollars, with what is left of it now."""

    amount_nanos = serializers.IntegerField(min_value=1, max_value=GRANT_MAX_NANOS)
    remaining_nanos = serializers.IntegerField(read_only=True, source="credit.remaining_nanos")
    state = serializers.ChoiceField(GrantState.choices, read_only=True, source="credit.state")

    class Meta:
        model = CreditGrant
        fields = (
            "id", "organization_id", "kind", "state", "amount_nanos", "remaining_nanos",
            "expired_nanos", "expires_at", "reason", "granted_by", "granted_at", "closed_at",
            "reversed_at",
        )  # fmt: skip
        read_only_fields = (
            "id", "organization_id", "expired_nanos", "granted_by", "granted_at", "closed_at",
            "reversed_at",
        )  # fmt: skip


class BalanceQuery(ClosedSerializer):
    """Whose requests are asked about: the organization's, one project's, or one API key's."""

    project_id = serializers.CharField(max_length=64, required=False)
    api_key_id = serializers.CharField(max_length=64, required=False)


class LimitStatusOwnerSerializer(serializers.Serializer[Any]):
    """The organization, project or API key that is limited."""

    kind = serializers.ChoiceField(["organization", "project", "key"])
    id = serializers.CharField()
    name = serializers.CharField()


class LimitStatusSerializer(serializers.Serializer[Any]):
    """The limit that binds. New requests may take `available_nanos`: what is neither spent nor
    held for requests in progress. Of the credit balance (`lifetime`) `limit_nanos` is all credit so
    far with the credit limit, and `renews_at` is null."""

    id = serializers.CharField(source="budget_id")
    owner = serializers.SerializerMethodField()
    period = serializers.SerializerMethodField()
    limit_nanos = serializers.IntegerField()
    spent_nanos = serializers.IntegerField()
    held_nanos = serializers.IntegerField()
    available_nanos = serializers.IntegerField()
    renews_at = serializers.DateTimeField(allow_null=True)

    @extend_schema_field(LimitStatusOwnerSerializer)
    def get_owner(self, limit: LimitStatus) -> dict[str, str]:
        """Return what is limited."""
        kind = kind_of(limit.budget_id)
        return {
            "kind": "organization" if kind is None or kind == "balance" else kind,
            "id": limited_id(limit.budget_id),
            "name": limit.name,
        }

    @extend_schema_field(serializers.ChoiceField(["lifetime", "month", "week", "day"]))
    def get_period(self, limit: LimitStatus) -> str:
        """Return the limit's period."""
        return period_of(limit.budget_id)


class CreditBalanceSerializer(serializers.Serializer[Any]):
    """The credit balance in nano-dollars; a debt is below zero. `held_nanos` of it are set aside
    for requests in progress. New requests may take `available_nanos`; `binding_limit` is the limit
    or balance of which they may take the least. `credit_limit_nanos` is what may be owed before
    tax, 0 for a prepaid organization."""

    balance_nanos = serializers.IntegerField()
    held_nanos = serializers.IntegerField()
    available_nanos = serializers.IntegerField()
    binding_limit = LimitStatusSerializer()
    credit_limit_nanos = serializers.IntegerField()
    is_credit_limit_suspended = serializers.BooleanField()


class CreditSerializer(serializers.Serializer[Any]):
    """Credit that was given or bought, in nano-dollars: how much of it is left, and until when."""

    id = serializers.CharField(source="grant.id")
    kind = serializers.ChoiceField(GrantKind.choices, source="grant.kind")
    state = serializers.ChoiceField(GrantState.choices)
    amount_nanos = serializers.IntegerField(source="grant.amount_nanos")
    remaining_nanos = serializers.IntegerField()
    expired_nanos = serializers.IntegerField(source="grant.expired_nanos")
    granted_at = serializers.DateTimeField(source="grant.granted_at")
    expires_at = serializers.DateTimeField(source="grant.expires_at", allow_null=True)


class CreditBalanceDetail(GenericAPIView[Any]):
    """The credit balance of an organization."""

    serializer_class = CreditBalanceSerializer

    @extend_schema(operation_id="credit_balance_retrieve", parameters=[BalanceQuery])
    def get(self, request: Request, organization_id: str) -> Response:
        """Retrieve the credit balance, and the limit that binds the requests of the organization,
        of a project, or of an API key."""
        access = get_access(request, organization_id, Permission.BILLING_READ)
        query = BalanceQuery.read(request.query_params.dict())
        organization = access.organization
        funds = selectors.funds(
            organization,
            timezone.now(),
            project=project(organization, query["project_id"]) if "project_id" in query else None,
            key=key(organization, query["api_key_id"]) if "api_key_id" in query else None,
        )
        return Response(CreditBalanceSerializer(funds).data)


class CustomerCreditGrantList(GenericAPIView[Any]):
    """The credit grants of an organization."""

    serializer_class = CreditSerializer
    ordering = ("-granted_at", "-id")

    @extend_schema(operation_id="credit_grants_list", responses=CreditSerializer(many=True))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's credit, newest first."""
        access = get_access(request, organization_id, Permission.BILLING_READ)
        page = self.paginate_queryset(selectors.grants(access.organization)) or []
        found = page_credit(access.organization.id, page)
        return self.get_paginated_response(CreditSerializer(found, many=True).data)


class OrganizationBalance(OperatorApiView):
    """The balance of a customer."""

    serializer_class = CreditBalanceSerializer

    @extend_schema(operation_id="admin_balance_retrieve")
    def get(self, request: Request, organization_id: str) -> Response:
        """Retrieve a customer's balance. The view is in the customer's audit log."""
        organization = any_organization(organization_id)
        record_organization_view(self.actor, organization.id, page="admin_balance_retrieve")
        return self.shown(selectors.funds(organization, timezone.now()))


class CreditGrantList(OperatorApiView):
    """The credit grants of a customer."""

    serializer_class = CreditGrantSerializer
    ordering = ("-granted_at", "id")
    write_permission = Permission.FINANCE_WRITE

    @extend_schema(operation_id="admin_credit_grants_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List a customer's credit grants, newest first. The view is in the customer's audit
        log."""
        organization = any_organization(organization_id)
        record_organization_view(self.actor, organization.id, page="admin_credit_grants_list")
        grants = selectors.grants(organization).filter(**self.filters(OperatorSerializer))
        page = self.paginate_queryset(grants) or []
        shown = self.get_serializer(with_credit(organization.id, page), many=True)
        return self.get_paginated_response(shown.data)

    @extend_schema(
        operation_id="admin_credit_grants_create",
        parameters=[ONCE],
        responses={201: CreditGrantSerializer},
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Give credit, once for each Idempotency-Key of the customer, which is kept for good. It
        pays debts first."""
        key = request.headers.get(HEADER, "")
        if not key:
            message = f"{HEADER} is missing; wanted a name for this grant."
            raise InvalidValue(message, param=HEADER, code="missing_required_parameter")
        values = CreditGrantSerializer.read(request.data)
        grant = grant_credit(
            organization_id=any_organization(organization_id).id,
            kind=GrantKind(values["kind"]),
            amount_nanos=values["amount_nanos"],
            reason=values["reason"],
            expires_at=values.get("expires_at"),
            idempotency_key=key,
            actor=self.actor,
            now=timezone.now(),
        )
        [shown] = with_credit(grant.organization_id, [grant])
        return self.shown(shown, status=201)


def with_credit(organization_id: str, grants: Sequence[CreditGrant]) -> Sequence[CreditGrant]:
    """Return grants of an organization, each with its state and what is left of it as `credit`."""
    for grant, credit in zip(grants, page_credit(organization_id, grants), strict=True):
        grant.credit = credit  # type: ignore[attr-defined]
    return grants


def page_credit(organization_id: str, grants: Sequence[CreditGrant]) -> list[Credit]:
    """Return the credit of a page of an organization's grants."""
    found = credit_by_grant(organization_id, [one.id for one in grants], timezone.now())
    by_id = {one.grant.id: one for one in found}
    return [by_id[one.id] for one in grants]
