"""The operators' price books in the management API."""

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
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
from control.catalog.models import Variant
from control.organizations.models import Organization
from control.permissions import Permission
from control.pricing import selectors, services
from control.pricing.models import BookState, Price, PriceBook


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
