"""Invoices and billing profiles in the management API."""

from typing import Any, get_args

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from billing.invoicing import selectors
from billing.invoicing.models import Invoice, Paper
from billing.invoicing.services.profiles import set_billing_profile
from billing.invoicing.typeset.pdf import invoice_pdf
from control.api.serializers import ClosedSerializer
from control.api.streaming import whole_export
from control.api.versions import versioned
from control.organizations.access import get_access
from control.permissions import Permission


class LineSerializer(serializers.Serializer[Any]):
    """One model, variant, tier, price and meter. `amount_nanos` is exact; `received_on` tells the
    month the usage was received in, an earlier one for usage that came late."""

    model = serializers.CharField(source="model_name")
    variant = serializers.CharField(source="variant_name")
    tier = serializers.CharField()
    price_id = serializers.CharField()
    meter = serializers.CharField()
    received_on = serializers.DateField()
    quantity_tokens = serializers.IntegerField()
    unit_price_nanos = serializers.IntegerField(help_text="Per million tokens.")
    amount_nanos = serializers.IntegerField()
    amount_cents = serializers.IntegerField()


class InvoiceSerializer(serializers.Serializer[Any]):
    """An invoice; amounts are cents of the currency. `status` is open, overdue, disputed, paid,
    written_off or void (taken back by a credit note)."""

    id = serializers.CharField(source="invoice.id")
    organization_id = serializers.CharField(source="invoice.organization_id")
    number = serializers.CharField(source="invoice.number")
    period = serializers.CharField(source="invoice.period")
    starts_on = serializers.DateField(source="invoice.starts_on")
    ends_on = serializers.DateField(source="invoice.ends_on")
    issued_at = serializers.DateTimeField(source="invoice.issued_at")
    due_on = serializers.DateField(source="invoice.due_on")
    currency = serializers.CharField(source="invoice.currency")
    subtotal_cents = serializers.IntegerField(source="invoice.subtotal_cents")
    credit_applied_cents = serializers.IntegerField(source="invoice.credit_applied_cents")
    tax_cents = serializers.IntegerField(source="invoice.tax_cents")
    total_cents = serializers.IntegerField(source="invoice.total_cents")
    open_cents = serializers.IntegerField()
    status = serializers.SerializerMethodField()
    purchase_order = serializers.CharField(source="invoice.purchase_order")

    @extend_schema_field(serializers.ChoiceField(list(get_args(selectors.State))))
    def get_status(self, standing: selectors.Standing) -> str:
        """Return how it stands today."""
        return standing.state(timezone.now().date())


class NoteSerializer(serializers.Serializer[Any]):
    """What takes an invoice back, or part of it."""

    id = serializers.CharField()
    number = serializers.CharField()
    issued_at = serializers.DateTimeField()
    reason = serializers.CharField()
    total_cents = serializers.IntegerField()


class WholeInvoiceSerializer(InvoiceSerializer):
    """An invoice with its lines and credit notes."""

    lines = serializers.SerializerMethodField()
    credit_notes = serializers.SerializerMethodField()

    @extend_schema_field(LineSerializer(many=True))
    def get_lines(self, standing: selectors.Standing) -> list[dict[str, Any]]:
        """Return the lines in their order."""
        rows = standing.invoice.lines.order_by("position")
        return list(LineSerializer(rows, many=True).data)

    @extend_schema_field(NoteSerializer(many=True))
    def get_credit_notes(self, standing: selectors.Standing) -> list[dict[str, Any]]:
        """Return the credit notes, oldest first."""
        rows = selectors.credit_notes(standing.invoice)
        return list(NoteSerializer(rows, many=True).data)


class ProfileSerializer(ClosedSerializer):
    """Whom invoices are for. `tax_id` is checked by its country's form and kept as the country
    writes it. Texts with characters that cannot be printed on invoices are refused. Amounts are in
    US dollars; `currency` shows them in another currency for information."""

    organization_id = serializers.CharField(read_only=True)
    legal_name = serializers.CharField(required=False, allow_blank=True, max_length=200)
    line1 = serializers.CharField(required=False, allow_blank=True, max_length=200)
    line2 = serializers.CharField(required=False, allow_blank=True, max_length=200)
    postal_code = serializers.CharField(required=False, allow_blank=True, max_length=20)
    city = serializers.CharField(required=False, allow_blank=True, max_length=200)
    region = serializers.CharField(required=False, allow_blank=True, max_length=200)
    country = serializers.CharField(required=False, allow_blank=True, max_length=2)
    tax_id = serializers.CharField(required=False, allow_blank=True, max_length=40)
    currency = serializers.CharField(required=False, max_length=3)
    recipients = serializers.ListField(
        child=serializers.EmailField(max_length=254), required=False, max_length=20
    )
    purchase_order = serializers.CharField(required=False, allow_blank=True, max_length=200)
    paper = serializers.ChoiceField(choices=Paper.choices, required=False)
    terms_days = serializers.IntegerField(read_only=True)
    collection = serializers.CharField(read_only=True)


class InvoiceList(GenericAPIView[Invoice]):
    """The invoices of an organization."""

    serializer_class = InvoiceSerializer
    ordering = ("-starts_on", "id")

    @extend_schema(operation_id="invoices_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List invoices, the newest month first."""
        organization = get_access(request, organization_id, Permission.BILLING_READ).organization
        page = self.paginate_queryset(selectors.invoices(organization))
        found = selectors.standings(page or [])
        return self.get_paginated_response(InvoiceSerializer(found, many=True).data)


class InvoiceDetail(APIView):
    """One invoice."""

    @extend_schema(responses=WholeInvoiceSerializer)
    def get(self, request: Request, organization_id: str, invoice_id: str) -> Response:
        """Show an invoice with its lines."""
        standing = selectors.standing(invoice_for(request, organization_id, invoice_id))
        return Response(WholeInvoiceSerializer(standing).data)


class InvoicePdf(APIView):
    """One invoice as a document."""

    @extend_schema(responses={(200, "application/pdf"): OpenApiTypes.BINARY})
    def get(self, request: Request, organization_id: str, invoice_id: str) -> HttpResponseBase:
        """Return the PDF; the same bytes every time."""
        return pdf_response(request._request, invoice_for(request, organization_id, invoice_id))


@versioned(ProfileSerializer)
class BillingProfileDetail(APIView):
    """The billing profile of an organization."""

    @extend_schema(responses=ProfileSerializer)
    def get(self, request: Request, organization_id: str) -> Response:
        """Show whom invoices are for."""
        organization = get_access(request, organization_id, Permission.BILLING_READ).organization
        return Response(ProfileSerializer(selectors.billing_profile(organization)).data)

    @extend_schema(request=ProfileSerializer, responses=ProfileSerializer)
    def patch(self, request: Request, organization_id: str) -> Response:
        """Change some of it."""
        found = get_access(request, organization_id, Permission.BILLING_WRITE)
        asked = ProfileSerializer.read(request.data, partial=True)
        profile = set_billing_profile(
            organization=found.organization, actor=found.actor, changes=asked
        )
        return Response(ProfileSerializer(profile).data)


def invoice_for(request: Request, organization_id: str, invoice_id: str) -> Invoice:
    """Return an invoice that the caller may see. Raises ObjectNotFound and NotPermitted."""
    access = get_access(request, organization_id, Permission.BILLING_READ)
    return selectors.invoice(access.organization, invoice_id)


def pdf_response(request: HttpRequest, invoice: Invoice) -> HttpResponseBase:
    """Return an invoice's PDF as a file."""
    return whole_export(
        request,
        lambda: invoice_pdf(invoice),
        content_type="application/pdf",
        name=f"{invoice.number}.pdf",
        organization_id=invoice.organization_id,
        is_inline=True,
    )
