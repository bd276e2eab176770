"""Payment methods, credit purchases and auto-recharge in the management API. Amounts are whole
cents of US dollars; a card's number never comes here, only the address of Stripe's page for it."""

from typing import Any

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from billing.payments import selectors
from billing.payments.models import AutoTopUp, PaymentMethod, StripePayment
from billing.payments.services import start_checkout, top_up
from billing.payments.services.asking import TOP_UP_MAX_CENTS, TOP_UP_MIN_CENTS, quote_top_up
from billing.payments.services.automatic import CAP_MAX_CENTS, set_auto_top_up
from billing.payments.services.methods import make_default, remove_method
from billing.payments.services.sessions import start_method
from control.api.idempotency import idempotent_outside_transaction
from control.api.pagination import SequencePagination
from control.api.serializers import ClosedSerializer
from control.api.versions import versioned
from control.errors import InvalidValue, ObjectNotFound
from control.organizations.access import OrganizationAccess, get_access
from control.permissions import Permission

IDEMPOTENCY_KEY = "Idempotency-Key"
ONCE = OpenApiParameter(
    IDEMPOTENCY_KEY,
    str,
    location=OpenApiParameter.HEADER,
    required=True,
    description="Names this wish: sent again with the same name, nothing happens twice.",
)


class PaymentMethodSerializer(ClosedSerializer):
    """A saved card or bank account."""

    id = serializers.CharField(read_only=True)
    organization_id = serializers.CharField(read_only=True)
    kind = serializers.CharField(read_only=True)
    brand = serializers.CharField(read_only=True)
    last4 = serializers.CharField(read_only=True)
    expires_year = serializers.IntegerField(read_only=True, allow_null=True)
    expires_month = serializers.IntegerField(read_only=True, allow_null=True)
    is_default = serializers.BooleanField()
    created_at = serializers.DateTimeField(read_only=True)

    def validate_is_default(self, value: bool) -> bool:
        """Refuse to leave an organization without a default."""
        if not value:
            raise serializers.ValidationError("Make another method the default instead.")
        return value


class HostedPageSerializer(ClosedSerializer):
    """Where a person goes on."""

    url = serializers.CharField(read_only=True)


class CreditPurchaseSerializer(ClosedSerializer):
    """A purchase of credit. `url` is where a person goes on while it waits for them."""

    id = serializers.CharField(read_only=True)
    organization_id = serializers.CharField(read_only=True)
    status = serializers.CharField(read_only=True)
    purpose = serializers.CharField(read_only=True)
    currency = serializers.SerializerMethodField()
    amount_cents = serializers.IntegerField(read_only=True)
    tax_cents = serializers.IntegerField(read_only=True)
    total_cents = serializers.IntegerField(read_only=True)
    payment_method_id = serializers.CharField(source="method_id", read_only=True, allow_null=True)
    url = serializers.CharField(source="action_url", read_only=True)
    receipt_url = serializers.CharField(read_only=True)
    failure_code = serializers.CharField(read_only=True)
    failure_message = serializers.CharField(source="failure_words", read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    settled_at = serializers.DateTimeField(read_only=True, allow_null=True)

    def get_currency(self, payment: StripePayment) -> str:
        """Return the currency of the books."""
        return "usd"


class NewCreditPurchaseSerializer(ClosedSerializer):
    """The credit to buy, tax aside. Without a payment method a page of Stripe's takes one."""

    amount_cents = serializers.IntegerField(min_value=TOP_UP_MIN_CENTS, max_value=TOP_UP_MAX_CENTS)
    currency = serializers.ChoiceField(["usd"], default="usd")
    payment_method_id = serializers.CharField(max_length=64, required=False, allow_null=True)
    total_cents = serializers.IntegerField(
        min_value=TOP_UP_MIN_CENTS,
        required=False,
        help_text="With a payment method: the total of the quote. Another one is not charged.",
    )


class CreditPurchaseQuoteSerializer(ClosedSerializer):
    """What a purchase comes to, tax included."""

    amount_cents = serializers.IntegerField(min_value=TOP_UP_MIN_CENTS, max_value=TOP_UP_MAX_CENTS)
    tax_cents = serializers.IntegerField(read_only=True)
    total_cents = serializers.IntegerField(read_only=True)


class AutoRechargeSerializer(ClosedSerializer):
    """When an organization buys credit by itself."""

    is_on = serializers.BooleanField()
    threshold_cents = serializers.IntegerField(min_value=0, max_value=TOP_UP_MAX_CENTS)
    amount_cents = serializers.IntegerField(min_value=TOP_UP_MIN_CENTS, max_value=TOP_UP_MAX_CENTS)
    monthly_cap_cents = serializers.IntegerField(
        min_value=TOP_UP_MIN_CENTS, max_value=CAP_MAX_CENTS
    )
    stopped_at = serializers.DateTimeField(read_only=True, allow_null=True)


class PaymentMethodList(GenericAPIView[PaymentMethod]):
    """The saved methods of an organization."""

    serializer_class = PaymentMethodSerializer
    pagination_class = SequencePagination

    @extend_schema(
        operation_id="payment_methods_list",
        responses=PaymentMethodSerializer(many=True),
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """List the methods that can pay, the default first."""
        found = get_access(request, organization_id, Permission.BILLING_READ)
        rows = selectors.methods(found.organization.id, mode())
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(PaymentMethodSerializer(page, many=True).data)

    @idempotent_outside_transaction
    @extend_schema(request=None, responses={201: HostedPageSerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Open a page of Stripe's on which a person saves a card or bank account."""
        found = get_access(request, organization_id, Permission.BILLING_WRITE)
        url = start_method(organization=found.organization, actor=found.actor, now=timezone.now())
        return Response({"url": url}, status=201)


@versioned(PaymentMethodSerializer)
class PaymentMethodDetail(GenericAPIView[PaymentMethod]):
    """One saved method."""

    serializer_class = PaymentMethodSerializer

    def get(self, request: Request, organization_id: str, method_id: str) -> Response:
        """Show a method."""
        found = get_access(request, organization_id, Permission.BILLING_READ)
        row = selectors.method(found.organization.id, mode(), method_id)
        return Response(PaymentMethodSerializer(row).data)

    def patch(self, request: Request, organization_id: str, method_id: str) -> Response:
        """Make a method the default."""
        found = get_access(request, organization_id, Permission.BILLING_WRITE)
        PaymentMethodSerializer.read(request.data)
        row = make_default(
            organization=found.organization,
            method_id=method_id,
            actor=found.actor,
            now=timezone.now(),
        )
        return Response(PaymentMethodSerializer(row).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: str, method_id: str) -> Response:
        """Take a method off, here and at Stripe."""
        found = get_access(request, organization_id, Permission.BILLING_WRITE)
        remove_method(
            organization=found.organization,
            method_id=method_id,
            actor=found.actor,
            now=timezone.now(),
        )
        return Response(status=204)


class CreditPurchaseList(GenericAPIView[StripePayment]):
    """The credit purchases of an organization."""

    serializer_class = CreditPurchaseSerializer

    @extend_schema(operation_id="credit_purchases_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List credit purchases, the newest first."""
        found = get_access(request, organization_id, Permission.BILLING_READ)
        rows = selectors.top_ups(found.organization.id, mode())
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(CreditPurchaseSerializer(page, many=True).data)

    @extend_schema(
        request=NewCreditPurchaseSerializer,
        parameters=[ONCE],
        responses={201: CreditPurchaseSerializer},
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Buy credit, with a saved method or on a page of Stripe's; once per Idempotency-Key."""
        found = get_access(request, organization_id, Permission.BILLING_WRITE)
        key = request.headers.get(IDEMPOTENCY_KEY, "")
        if not key:
            raise InvalidValue(
                f"{IDEMPOTENCY_KEY} is missing.", param=IDEMPOTENCY_KEY,
                code="missing_required_parameter",
            )  # fmt: skip
        asked = NewCreditPurchaseSerializer.read(request.data)
        payment = ask(found, asked, key)
        return Response(CreditPurchaseSerializer(payment).data, status=201)


class CreditPurchaseQuoteList(GenericAPIView[StripePayment]):
    """What credit purchases would come to."""

    serializer_class = CreditPurchaseQuoteSerializer

    @idempotent_outside_transaction
    @extend_schema(responses=CreditPurchaseQuoteSerializer)
    def post(self, request: Request, organization_id: str) -> Response:
        """Show amount, tax and total before anything is charged; nothing is kept."""
        found = get_access(request, organization_id, Permission.BILLING_WRITE)
        asked = CreditPurchaseQuoteSerializer.read(request.data)
        quote = quote_top_up(
            organization=found.organization, actor=found.actor, now=timezone.now(), **asked
        )
        return Response(CreditPurchaseQuoteSerializer(quote).data)


class CreditPurchaseDetail(GenericAPIView[StripePayment]):
    """One credit purchase."""

    serializer_class = CreditPurchaseSerializer

    def get(self, request: Request, organization_id: str, purchase_id: str) -> Response:
        """Retrieve a credit purchase."""
        found = get_access(request, organization_id, Permission.BILLING_READ)
        rows = selectors.top_ups(found.organization.id, mode())
        payment = rows.filter(id=purchase_id).first()
        if payment is None:
            raise ObjectNotFound("There is no such credit purchase.")
        return Response(CreditPurchaseSerializer(payment).data)


@versioned(AutoRechargeSerializer)
class AutoRechargeDetail(GenericAPIView[AutoTopUp]):
    """The auto-recharge of an organization."""

    serializer_class = AutoRechargeSerializer

    def get(self, request: Request, organization_id: str) -> Response:
        """Show the settings; nothing was set where there are none."""
        found = get_access(request, organization_id, Permission.BILLING_READ)
        row = selectors.auto_top_up(found.organization.id)
        if row is None:
            raise ObjectNotFound("Auto-recharge was never set up.")
        return Response(AutoRechargeSerializer(row).data)

    def put(self, request: Request, organization_id: str) -> Response:
        """Set them; after declines this starts them again."""
        found = get_access(request, organization_id, Permission.BILLING_WRITE)
        asked = AutoRechargeSerializer.read(request.data)
        row = set_auto_top_up(
            organization=found.organization, actor=found.actor, now=timezone.now(), **asked
        )
        return Response(AutoRechargeSerializer(row).data)


def ask(found: OrganizationAccess, asked: dict[str, Any], key: str) -> StripePayment:
    """Ask for a purchase with the method that is named, or on a page of Stripe's."""
    common: dict[str, Any] = {
        "organization": found.organization,
        "amount_cents": asked["amount_cents"],
        "idempotency_key": key,
        "actor": found.actor,
        "now": timezone.now(),
    }
    method_id = asked.get("payment_method_id")
    if method_id is None:
        return start_checkout(**common)
    method = selectors.method(found.organization.id, mode(), method_id)
    return top_up(method=method, agreed_cents=asked.get("total_cents"), **common)


def mode() -> str:
    """Return the mode whose rows are shown; without Stripe there are none."""
    keys = settings.CONFIG.stripe
    return keys.mode if keys else ""
