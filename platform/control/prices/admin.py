"""The operator's price books: filled in dollars per million tokens, published, looked at."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.forms import BaseInlineFormSet, ModelForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.http import urlencode
from unfold.admin import TabularInline
from unfold.decorators import action

from control.actor import Actor
from control.admin.fields import InDollars, dollars
from control.admin.rows import OperatorAdmin, operator
from control.prices import decisions, selectors, services
from control.prices.models import Price, PriceBook

BAND = ("variant", "tier", "input_tokens_min")
"""What a price prices; another band is another price."""
REPLAY = "admin:economics_replayrun_add"
"""Where a draft is replayed: named, not imported, since control knows none of the layers above."""


class PriceInline(InDollars, TabularInline):
    """The prices of a book, in dollars per million tokens."""

    model = Price
    verbose_name_plural = "prices in dollars per million tokens"
    ordering = BAND
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
        return (*BAND, *meters)

    def get_readonly_fields(
        self, request: HttpRequest, obj: PriceBook | None = None
    ) -> tuple[str, ...]:
        """Return all fields of a published book."""
        return () if self.has_change_permission(request, obj) else self.get_fields(request, obj)

    def has_add_permission(self, request: HttpRequest, obj: PriceBook | None = None) -> bool:
        """Only drafts take prices, from who may change books."""
        may = bool(request.user.has_perm("prices.change_pricebook"))
        return may and (obj is None or not obj.is_published)

    has_change_permission = has_add_permission
    has_delete_permission = has_add_permission


@admin.register(PriceBook)
class PriceBookAdmin(OperatorAdmin):
    """Price books."""

    list_display = (
        "name", "state", "organization", "effective_at", "ends_at", "published_by", "created_at",
    )  # fmt: skip
    list_select_related = ("organization", "published_by")
    search_fields = ("name", "id", "organization__name", "organization__id")
    fields = (
        "name", "organization", "effective_at", "ends_at",
        "published_at", "published_by", "cancelled_at", "cancelled_by",
    )  # fmt: skip
    readonly_fields = ("published_at", "published_by", "cancelled_at", "cancelled_by")
    autocomplete_fields = ("organization",)
    inlines = (PriceInline,)
    actions_detail = ("publish", "replay", "cancel")

    @admin.display(description="State")
    def state(self, book: PriceBook) -> str:
        """Return how far the book has come."""
        return book.state(timezone.now())

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A published book never changes."""
        published = isinstance(obj, PriceBook) and obj.is_published
        return not published and super().has_change_permission(request, obj)

    def has_publish_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only drafts are published."""
        state = selectors.book(unquote(object_id)).state(timezone.now())
        return super().has_change_permission(request) and state == "draft"

    def has_replay_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only drafts are replayed, where somebody brings the page."""
        try:
            reverse(REPLAY)
        except NoReverseMatch:
            return False
        return self.has_publish_permission(request, object_id)

    def has_cancel_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Only what has yet to take effect is cancelled."""
        state = selectors.book(unquote(object_id)).state(timezone.now())
        return super().has_change_permission(request) and state == "to come"

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
        moved = [price for price, changed in formset.changed_objects if {*changed} & {*BAND}]
        for price in (*formset.deleted_objects, *moved):
            services.remove_price(actor=actor, price=selectors.price(price.id))
        changed = [price for price, _ in formset.changed_objects]
        for price in (*changed, *formset.new_objects):
            services.set_price(
                actor=actor,
                book=price.book,
                variant=price.variant,
                tier=price.tier,
                input_tokens_min=price.input_tokens_min,
                input_nanos=price.input_nanos,
                cached_input_nanos=price.cached_input_nanos,
                output_nanos=price.output_nanos,
            )

    @action(description="Publish", permissions=["publish"])
    def publish(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Put the book in force; it never changes again."""
        return decisions.publish_page(self, request, selectors.book(unquote(object_id)))

    @action(description="Replay", permissions=["replay"])
    def replay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask what the draft would have charged for real usage: a page of the layers above."""
        query = urlencode({"book": selectors.book(unquote(object_id)).id})
        return redirect(f"{reverse(REPLAY)}?{query}")

    @action(description="Cancel", permissions=["cancel"])
    def cancel(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take the book back before it takes effect."""
        return decisions.cancel_page(self, request, selectors.book(unquote(object_id)))
