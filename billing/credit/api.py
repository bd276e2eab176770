"""A customer's balance and credit grants in the management API, for operators."""

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from billing.credit import selectors
from billing.credit.models import CreditGrant, GrantKind, GrantState
from billing.credit.services.grants import GRANT_MAX_NANOS, KEY_MAX, grant_credit
from control.api.idempotency import HEADER
from control.api.operator_views import OperatorApiView, OperatorSerializer, RowSerializer
from control.audit.operator_access import record_organization_view
from control.errors import InvalidValue
from control.organizations.selectors import organization as any_organization
from control.permissions import Permission

ONCE = OpenApiParameter(
    HEADER,
    str,
    OpenApiParameter.HEADER,
    required=True,
    description=f"Names the grant, in 1 to {KEY_MAX} characters: sent again, it is made once.",
)


class BalanceSerializer(OperatorSerializer):
    """A customer's credit in nano-dollars; a debt is below zero. `held_nanos` of it are set aside
    for requests in progress. New requests may take `available_nanos`; null: there is no limit."""

    balance_nanos = serializers.IntegerField()
    held_nanos = serializers.IntegerField()
    available_nanos = serializers.IntegerField(allow_null=True)


class CreditGrantSerializer(RowSerializer):
    """Credit given to a customer, in nano-dollars; what is left of it follows the ledger."""

    amount_nanos = serializers.IntegerField(min_value=1, max_value=GRANT_MAX_NANOS)
    remaining_nanos = serializers.IntegerField(read_only=True)
    state = serializers.SerializerMethodField()

    class Meta:
        model = CreditGrant
        fields = (
            "id", "state", "organization_id", "kind", "amount_nanos", "remaining_nanos",
            "expired_nanos", "expires_at", "reason", "granted_by", "granted_at", "closed_at",
            "reversed_at",
        )  # fmt: skip
        read_only_fields = (
            "id", "organization_id", "expired_nanos", "granted_by", "granted_at", "closed_at",
            "reversed_at",
        )  # fmt: skip

    @extend_schema_field(serializers.ChoiceField(choices=GrantState.choices))
    def get_state(self, grant: CreditGrant) -> str:
        """Return whether it may be spent: `active`, `used`, `expired` or `reversed`."""
        return grant.state(timezone.now())


class OrganizationBalance(OperatorApiView):
    """The balance of a customer."""

    serializer_class = BalanceSerializer

    @extend_schema(operation_id="admin_balance_retrieve")
    def get(self, request: Request, organization_id: str) -> Response:
        """Retrieve a customer's balance. The view is in the customer's audit log."""
        organization = any_organization(organization_id)
        record_organization_view(self.actor, organization.id, page="admin_balance_retrieve")
        funds = selectors.funds(organization, timezone.now())
        return self.shown(funds._asdict())


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
        return self.filtered_page(selectors.grants(organization))

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
        return self.shown(selectors.grant_with_account(grant.id), status=201)
