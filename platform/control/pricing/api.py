"""The catalog of an organization in the management API, with prices and quality reports, and the
operators' price books."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
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
from control.catalog import selectors as catalog
from control.catalog.models import Model, QualityReport, Variant
from control.organizations.access import get_access
from control.organizations.models import Organization
from control.permissions import Permission
from control.pricing import selectors, services
from control.pricing.models import BookState, Price, PriceBook
from control.pricing.selectors import Schedule, schedules_in_force


@dataclass(frozen=True, slots=True)
class VariantOffer:
    """A variant with its price schedule for the organization and its newest quality report."""

    variant: Variant
    schedule: Schedule
    report: QualityReport | None

    @property
    def price(self) -> Price | None:
        """The price of the base band; None where the variant has none."""
        return next(iter(self.schedule), None)

    @property
    def public_id(self) -> str:
        """The name that customers put in `model`."""
        return str(self.variant)


class PriceSerializer(ClosedSerializer):
    """A price in nano-dollars per million tokens, for requests with at least `input_tokens_min`
    input tokens.

    `is_contract` distinguishes the organization's own price from the list price.
    """

    price_id = serializers.CharField(source="id")
    input_tokens_min = serializers.IntegerField()
    is_contract = serializers.BooleanField()
    input_nanos = serializers.IntegerField()
    cached_input_nanos = serializers.IntegerField()
    output_nanos = serializers.IntegerField()
    effective_at = serializers.DateTimeField(source="book.effective_at")


class QualitySerializer(ClosedSerializer):
    """A quality report; `document` is the evaluation's own report."""

    accuracy = serializers.FloatField()
    accuracy_low = serializers.FloatField()
    accuracy_high = serializers.FloatField()
    question_count = serializers.IntegerField()
    perplexity = serializers.FloatField(allow_null=True)
    size_bytes = serializers.IntegerField(allow_null=True)
    tokens_per_second = serializers.FloatField(allow_null=True)
    skills = serializers.JSONField()
    document = serializers.JSONField()
    created_at = serializers.DateTimeField()


class VariantSerializer(ClosedSerializer):
    """A published variant."""

    id = serializers.CharField(source="variant.id")
    public_id = serializers.CharField()
    precision = serializers.CharField(source="variant.precision")
    is_default = serializers.BooleanField(source="variant.is_default")
    context_tokens = serializers.IntegerField(source="variant.context_tokens")
    output_tokens_max = serializers.IntegerField(source="variant.output_tokens_max")
    dimensions = serializers.IntegerField(source="variant.dimensions", allow_null=True)
    parameter_count = serializers.IntegerField(source="variant.parameter_count", allow_null=True)
    size_bytes = serializers.IntegerField(source="variant.size_bytes", allow_null=True)
    price = PriceSerializer(allow_null=True)
    prices = PriceSerializer(source="schedule", many=True)
    quality = QualitySerializer(source="report", allow_null=True)


class ModelSerializer(ClosedSerializer):
    """A model with its published variants."""

    id = serializers.CharField()
    public_id = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    task = serializers.CharField()
    created_at = serializers.DateTimeField()
    variants = serializers.SerializerMethodField()

    @extend_schema_field(VariantSerializer(many=True))
    def get_variants(self, model: Model) -> object:
        """Return the variants with their current prices."""
        schedules: Mapping[str, Schedule] = self.context["schedules"]
        return VariantSerializer(offers(model, schedules), many=True).data


class OfferedModelList(GenericAPIView[Model]):
    """The models that an organization may use."""

    serializer_class = ModelSerializer

    @extend_schema(operation_id="models_list")
    def get(self, request: Request, organization_id: str) -> Response:
        """List models with variants, prices and quality reports."""
        found = get_access(request, organization_id)
        page = self.paginate_queryset(catalog.models_for(found.organization))
        shown = _shown(page, found.organization, timezone.now(), many=True)
        return self.get_paginated_response(shown)


class OfferedModelDetail(GenericAPIView[Model]):
    """One model."""

    serializer_class = ModelSerializer

    def get(self, request: Request, organization_id: str, model: str) -> Response:
        """Show a model by its id or public id."""
        found = get_access(request, organization_id)
        row = catalog.model_for(found.organization, model)
        return Response(_shown(row, found.organization, timezone.now()))


def offers(model: Model, schedules: Mapping[str, Schedule]) -> list[VariantOffer]:
    """Return a model's prefetched variants, each with its prices and newest report."""
    return [
        VariantOffer(
            variant=variant,
            schedule=schedules.get(variant.id, ()),
            report=variant.latest_report,
        )
        for variant in model.variants.all()
    ]


def _shown(models: object, organization: Organization, at: datetime, many: bool = False) -> object:
    context = {"schedules": schedules_in_force(organization, at)}
    return ModelSerializer(models, many=many, context=context).data


class AdminPriceSerializer(RowSerializer):
    """A price in nano-dollars per million tokens, for requests with at least `input_tokens_min`
    input tokens."""

    variant_id = RowIdField(Variant, source="variant")

    class Meta:
        model = Price
        fields = (
            "id", "variant_id", "tier", "input_tokens_min",
            "input_nanos", "cached_input_nanos", "output_nanos",
        )  # fmt: skip
        read_only_fields = ("id",)


class PriceBookChangesSerializer(RowSerializer):
    """The changes that a draft takes."""

    organization_id = RowIdField(
        Organization, source="organization", required=False, allow_null=True,
        help_text="The organization whose contract it is; null for list prices.",
    )  # fmt: skip

    class Meta:
        model = PriceBook
        fields: tuple[str, ...] = ("name", "organization_id", "effective_at", "ends_at")


class PriceBookSerializer(PriceBookChangesSerializer):
    """A price book; a published one never changes."""

    state = serializers.SerializerMethodField()

    class Meta(PriceBookChangesSerializer.Meta):
        fields = (
            "id", "state", *PriceBookChangesSerializer.Meta.fields,
            "created_at", "published_at", "cancelled_at",
        )  # fmt: skip
        read_only_fields = ("id", "created_at", "published_at", "cancelled_at")

    @extend_schema_field(serializers.ChoiceField(choices=BookState.choices))
    def get_state(self, book: PriceBook) -> str:
        """Return `draft`, `scheduled`, `active`, `superseded` (newer books have replaced all of its
        prices), `expired` or `cancelled`."""
        return book.state(timezone.now())


class FullPriceBookSerializer(PriceBookSerializer):
    """A price book with its prices."""

    prices = serializers.SerializerMethodField()

    class Meta(PriceBookSerializer.Meta):
        fields = (*PriceBookSerializer.Meta.fields, "prices")

    @extend_schema_field(AdminPriceSerializer(many=True))
    def get_prices(self, book: PriceBook) -> object:
        """Return the prices, by variant, tier and band."""
        return AdminPriceSerializer(selectors.prices(book), many=True).data


class PublishSerializer(OperatorSerializer):
    """When a price book takes effect, now by default, and the phrase that confirms unusual prices,
    which the error `confirmation_needed` names."""

    effective_at = serializers.DateTimeField(required=False, allow_null=True)
    confirmation = serializers.CharField(required=False, max_length=400, allow_blank=True)


class PriceBookFilterSerializer(OperatorSerializer):
    """Filters of price books."""

    organization_id = serializers.CharField(required=False)


class PriceBookList(OperatorApiView):
    """All price books."""

    serializer_class = PriceBookSerializer
    write_permission = Permission.FINANCE_WRITE

    @extend_schema(operation_id="admin_price_books_list", parameters=[PriceBookFilterSerializer])
    def get(self, request: Request) -> Response:
        """List price books, newest first."""
        return self.filtered_page(selectors.books(), PriceBookFilterSerializer)

    @idempotent
    @extend_schema(operation_id="admin_price_books_create", responses={201: PriceBookSerializer})
    def post(self, request: Request) -> Response:
        """Draft a price book, which has no effect until it is published."""
        values = PriceBookSerializer.read(request.data)
        return self.shown(services.draft_book(actor=self.actor, **values), status=201)


@versioned(PriceBookChangesSerializer)
class PriceBookDetail(OperatorApiView):
    """One price book."""

    serializer_class = FullPriceBookSerializer
    write_permission = Permission.FINANCE_WRITE

    @extend_schema(operation_id="admin_price_books_retrieve")
    def get(self, request: Request, book_id: str) -> Response:
        """Retrieve a price book with its prices."""
        return self.shown(selectors.book(book_id))

    @extend_schema(operation_id="admin_price_books_update", request=PriceBookChangesSerializer)
    def patch(self, request: Request, book_id: str) -> Response:
        """Change a draft, all or nothing."""
        changes = PriceBookChangesSerializer.read(request.data, partial=True)
        book = selectors.book(book_id)
        return self.shown(services.update_book(actor=self.actor, book=book, changes=changes))


class PriceBookPriceList(OperatorApiView):
    """The prices of a draft."""

    serializer_class = AdminPriceSerializer
    write_permission = Permission.FINANCE_WRITE

    @idempotent
    @extend_schema(operation_id="admin_price_books_set_price")
    def post(self, request: Request, book_id: str) -> Response:
        """Set the price of a variant, tier and band in a draft."""
        values = AdminPriceSerializer.read(request.data)
        book = selectors.book(book_id)
        return self.shown(services.set_price(actor=self.actor, book=book, **values))


class PriceBookPriceDetail(OperatorApiView):
    """One price of a draft."""

    serializer_class = AdminPriceSerializer
    write_permission = Permission.FINANCE_WRITE

    @extend_schema(operation_id="admin_price_books_remove_price", responses={204: None})
    def delete(self, request: Request, book_id: str, price_id: str) -> Response:
        """Remove a price from a draft: the earlier price of its variant stays in force."""
        price = selectors.price_in(selectors.book(book_id), price_id)
        services.remove_price(actor=self.actor, price=price)
        return Response(status=204)


class PublishPriceBook(OperatorApiView):
    """The publication of a price book."""

    serializer_class = FullPriceBookSerializer
    write_permission = Permission.FINANCE_WRITE

    @idempotent
    @extend_schema(operation_id="admin_price_books_publish", request=PublishSerializer)
    def post(self, request: Request, book_id: str) -> Response:
        """Publish a price book, which never changes again. If prices look mis-keyed, the answer
        is 409 `confirmation_needed`, and names the phrase to send as `confirmation`."""
        values = PublishSerializer.read(request.data)
        book = selectors.book(book_id)
        return self.shown(services.publish_book(actor=self.actor, book=book, **values))


class CancelPriceBook(OperatorApiView):
    """The cancellation of a price book."""

    serializer_class = FullPriceBookSerializer
    write_permission = Permission.FINANCE_WRITE

    @idempotent
    @extend_schema(operation_id="admin_price_books_cancel", request=None)
    def post(self, request: Request, book_id: str) -> Response:
        """Cancel a published price book before it takes effect."""
        book = selectors.book(book_id)
        return self.shown(services.cancel_book(actor=self.actor, book=book))
