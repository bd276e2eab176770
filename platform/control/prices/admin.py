"""The operator's price books: drafts are edited, published ones looked at."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet, ModelForm
from django.http import HttpRequest
from unfold.admin import TabularInline

from control.actor import Actor
from control.operator_admin import OperatorAdmin, operator
from control.operator_fields import InDollars, dollars
from control.prices import services
from control.prices.models import Price, PriceBook


class PriceInline(InDollars, TabularInline):
    """The prices of a book, in dollars per million tokens."""

    model = Price
    verbose_name_plural = "prices in dollars per million tokens"
    extra = 0
    hide_title = True

    input = dollars("input_nanos", "Input")
    cached_input = dollars("cached_input_nanos", "Cached input")
    output = dollars("output_nanos", "Output")

    def get_fields(self, request: HttpRequest, obj: PriceBook | None = None) -> tuple[str, ...]:
        """Return the meters to fill in, or to look at once the book is published."""
        meters = ("input_nanos", "cached_input_nanos", "output_nanos")
        if not self.has_change_permission(request, obj):
            meters = ("input", "cached_input", "output")
        return ("variant", "tier", *meters)

    def get_readonly_fields(
        self, request: HttpRequest, obj: PriceBook | None = None
    ) -> tuple[str, ...]:
        """Return all fields of a published book."""
        return () if self.has_change_permission(request, obj) else self.get_fields(request, obj)

    def has_add_permission(self, request: HttpRequest, obj: PriceBook | None = None) -> bool:
        """Only drafts take prices."""
        return obj is None or not obj.is_published

    has_change_permission = has_add_permission
    has_delete_permission = has_add_permission


@admin.register(PriceBook)
class PriceBookAdmin(OperatorAdmin):
    """Price books."""

    list_display = ("name", "effective_at", "published_at", "published_by", "created_at")
    fields = ("name", "effective_at", "published_at", "published_by")
    readonly_fields = ("published_at", "published_by")
    inlines = (PriceInline,)
    actions = ("publish",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A published book never changes."""
        published = isinstance(obj, PriceBook) and obj.is_published
        return not published and super().has_change_permission(request, obj)

    def add_row(self, actor: Actor, values: dict[str, Any]) -> PriceBook:
        """Begin a book."""
        return services.draft_book(actor=actor, **values)

    def change_row(self, actor: Actor, row: PriceBook, changes: dict[str, Any]) -> PriceBook:
        """Change a draft."""
        return services.update_book(actor=actor, book=row, changes=changes)

    def save_formset(
        self, request: HttpRequest, form: ModelForm, formset: BaseInlineFormSet, change: bool
    ) -> None:
        """Set and remove the prices that the table changed, through their services."""
        actor = operator(request)
        formset.save(commit=False)
        for price in formset.deleted_objects:
            services.remove_price(actor=actor, price=price)
        changed = [price for price, _ in formset.changed_objects]
        for price in (*changed, *formset.new_objects):
            services.set_price(
                actor=actor,
                book=price.book,
                variant=price.variant,
                tier=price.tier,
                input_nanos=price.input_nanos,
                cached_input_nanos=price.cached_input_nanos,
                output_nanos=price.output_nanos,
            )

    @admin.action(description="Publish, in force from the effective time or now")
    def publish(self, request: HttpRequest, queryset: QuerySet[PriceBook]) -> None:
        """Put books in force; they never change again."""
        self.carry_out(
            request, queryset, "is published",
            lambda actor, row: services.publish_book(
                actor=actor, book=row, effective_at=row.effective_at
            ),
        )  # fmt: skip
