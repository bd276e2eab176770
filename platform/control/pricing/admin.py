"""The operators' price books: edited in dollars per million tokens, published, cancelled."""

from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db import transaction
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet, ModelForm
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSplitDateTimeWidget, UnfoldAdminTextInputWidget

from control.admin.base import OperatorAdmin, VersionedInline, operator, row_url
from control.admin.confirm import confirmation_page
from control.admin.fields import DollarsMixin, dollars
from control.errors import Conflict, ServiceError
from control.forms import VERSION, VersionField
from control.permissions import Actor
from control.pricing import selectors, services
from control.pricing.models import BookState, Price, PriceBook
from control.pricing.price_changes import (
    PriceChange,
    changes_in,
    confirmation_phrase,
    examples,
)
from control.versions import version_of

BAND = ("variant", "tier", "input_tokens_min")
"""The fields that identify a band; a price with other values is another price."""
EXAMPLES_SHOWN = 3
REPLAY = "admin:economics_replayrun_add"
"""The page that replays a draft: named, not imported, since it belongs to a layer above."""
UNUSUAL = '<strong class="text-red-600 dark:text-red-500">{}</strong>'
HEADERS = (_("Price per million tokens"), _("Old price"), _("New price"), "")


class PriceInline(DollarsMixin, VersionedInline):
    """The prices of a book, in dollars per million tokens."""

    model = Price
    verbose_name_plural = _("prices in dollars per million tokens")
    ordering = BAND
    extra = 0
    hide_title = True

    column_labels = {
        "input_nanos": _("Input"),
        "cached_input_nanos": _("Cached input"),
        "output_nanos": _("Output"),
    }

    input = dollars("input_nanos", _("Input"))
    cached_input = dollars("cached_input_nanos", _("Cached input"))
    output = dollars("output_nanos", _("Output"))

    def get_fields(self, request: HttpRequest, obj: PriceBook | None = None) -> tuple[str, ...]:
        """Return the meters as inputs, or as read-only dollars once the book is published."""
        meters = ("input_nanos", "cached_input_nanos", "output_nanos")
        if not self.has_change_permission(request, obj):
            meters = ("input", "cached_input", "output")
        return (*BAND, *meters)

    def get_readonly_fields(
        self, request: HttpRequest, obj: PriceBook | None = None
    ) -> tuple[str, ...]:
        """Return all fields of a published book, none of a draft."""
        return () if self.has_change_permission(request, obj) else self.get_fields(request, obj)

    def has_add_permission(self, request: HttpRequest, obj: PriceBook | None = None) -> bool:
        """Allow changes to drafts only, by operators who may change books."""
        may = bool(request.user.has_perm("pricing.change_pricebook"))
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
        "state", "name", "organization", "effective_at", "ends_at",
        "published_at", "published_by", "cancelled_at", "cancelled_by",
    )  # fmt: skip
    readonly_fields = ("state", "published_at", "published_by", "cancelled_at", "cancelled_by")
    autocomplete_fields = ("organization",)
    inlines = (PriceInline,)
    actions_detail = ("publish", "replay", "cancel")

    def get_queryset(self, request: HttpRequest) -> QuerySet[PriceBook]:
        """Return the books with what their state needs."""
        return selectors.books()

    @admin.display(description=_("State"))
    def state(self, book: PriceBook) -> str:
        """Return the state of the book now."""
        return str(book.state(timezone.now()).label)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse changes to a published book."""
        published = isinstance(obj, PriceBook) and obj.is_published
        return not published and super().has_change_permission(request, obj)

    def has_publish_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Allow only drafts to be published."""
        return self._is(object_id, BookState.DRAFT) and super().has_change_permission(request)

    def has_replay_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Allow only drafts to be replayed, where the page is installed."""
        try:
            reverse(REPLAY)
        except NoReverseMatch:
            return False
        return self.has_publish_permission(request, object_id)

    def has_cancel_permission(self, request: HttpRequest, object_id: str) -> bool:
        """Allow only a book that has yet to take effect to be cancelled."""
        return self._is(object_id, BookState.SCHEDULED) and super().has_change_permission(request)

    def _is(self, object_id: str, state: BookState) -> bool:
        return selectors.book(unquote(object_id)).state(timezone.now()) == state

    def add_row(self, actor: Actor, values: dict[str, Any]) -> PriceBook:
        """Create a draft."""
        return services.draft_book(actor=actor, **values)

    def change_row(self, actor: Actor, row: PriceBook, changes: dict[str, Any]) -> PriceBook:
        return services.update_book(actor=actor, book=row, changes=changes)

    def save_formset(
        self, request: HttpRequest, form: ModelForm, formset: BaseInlineFormSet, change: bool
    ) -> None:
        """Set and remove the prices that the table changed, through the services."""
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

    @action(description=_("Publish"), permissions=["publish"])
    def publish(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Publish the book; it never changes again."""
        return publish_page(self, request, selectors.book(unquote(object_id)))

    @action(description=_("Replay"), permissions=["replay"])
    def replay(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Open the page, of a layer above, that computes what the draft would have charged for real
        usage."""
        query = urlencode({"book": selectors.book(unquote(object_id)).id})
        return redirect(f"{reverse(REPLAY)}?{query}")

    @action(description=_("Cancel"), permissions=["cancel"])
    def cancel(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Cancel the book before it takes effect."""
        return cancel_page(self, request, selectors.book(unquote(object_id)))


class PublishForm(forms.Form):
    """The effective time of a book, and the phrase that confirms unusual prices."""

    effective_at = forms.SplitDateTimeField(
        label=_("Effective at"),
        required=False,
        widget=UnfoldAdminSplitDateTimeWidget,
        help_text=_("UTC. If left empty, the book takes effect at once."),
    )
    confirmation = forms.CharField(
        label=_("Confirmation"), required=False, widget=UnfoldAdminTextInputWidget
    )

    version = VersionField(required=False)
    is_stale = False

    def show(self, version: str) -> None:
        """Carry the version of the page that is shown now. A phrase for other prices is cleared."""
        self.initial[VERSION] = version
        if not self.is_bound:
            return
        data = cast(QueryDict, self.data).copy()
        data[VERSION] = version
        if self.is_stale:
            data.pop("confirmation", None)
        self.data = data

    def ask_for(self, phrase: str) -> None:
        """Show the phrase to type."""
        field = self.fields["confirmation"]
        words = gettext("Some prices are unusual. To confirm them, type: %(phrase)s")
        field.help_text = words % {"phrase": phrase}
        field.widget.attrs["autocomplete"] = "off"


def publish_page(admin: ModelAdmin, request: HttpRequest, book: PriceBook) -> HttpResponse:
    """Show old and new prices side by side; on POST, publish the book."""
    form = PublishForm(request.POST or None, initial={"effective_at": book.effective_at})
    if request.method == "POST" and form.is_valid():
        try:
            _publish_shown(request, book, form)
        except ServiceError as error:
            form.add_error(error.param if error.param in form.fields else None, error.message)
        else:
            return _done(request, book, gettext("%(book)s is published."))
    if form.is_bound:
        book = selectors.book(book.id)
    form.show(shown_version(book))
    changes = _changes(book, form)
    if unusual := [change for change in changes if change.is_unusual]:
        form.ask_for(confirmation_phrase(book, unusual))
    else:
        del form.fields["confirmation"]
    table = {"headers": HEADERS, "rows": [change_row(change) for change in changes]}
    warning = gettext("Once published, the book never changes; only another one can supersede it.")
    title = gettext("Publish %(book)s") % {"book": book}
    shown = examples(unusual or changes)[:EXAMPLES_SHOWN]
    words = " ".join([audience(book), *shown, warning])
    page = confirmation_page(
        admin, request, book, title=title, form=form, table=table, words=words,
        button=gettext("Publish"),
    )  # fmt: skip
    page.status_code = 409 if form.is_stale else 200
    return page


def shown_version(book: PriceBook) -> str:
    """Return the version of what the page shows before a time is chosen: whose prices, and each
    old and new price."""
    changes = changes_in(book, selectors.prices(book), book.effective_at or timezone.now())
    return version_of({"customers": audience(book), "prices": [str(each) for each in changes]})


@transaction.atomic
def _publish_shown(request: HttpRequest, book: PriceBook, form: PublishForm) -> None:
    """Publish the book if it is as the form's page showed it. Raises ServiceError; Conflict if it
    is not. A form without a version, such as a script's, is taken as it is."""
    book, version = selectors.locked_book(book.id), form.cleaned_data.pop(VERSION)
    form.is_stale = bool(version) and version != shown_version(book)
    if form.is_stale:
        words = gettext(
            "These prices changed after you opened the page, so nothing was published. Look at the"
            " table again, then publish."
        )
        raise Conflict(words)
    services.publish_book(actor=operator(request), book=book, **form.cleaned_data)


def cancel_page(admin: ModelAdmin, request: HttpRequest, book: PriceBook) -> HttpResponse:
    """Ask for confirmation; on POST, cancel the book."""
    form = forms.Form(request.POST or None)
    if request.method == "POST":
        try:
            services.cancel_book(actor=operator(request), book=book)
        except ServiceError as error:
            messages.error(request, error.message)
        else:
            return _done(request, book, gettext("%(book)s is cancelled."))
    warning = gettext(
        "They would take effect on %(time)s UTC. If you cancel the book, the previous prices stay"
        " in force and the book stays on record."
    ) % {"time": f"{book.effective_at:%Y-%m-%d %H:%M}"}
    title = gettext("Cancel %(book)s") % {"book": book}
    return confirmation_page(
        admin, request, book, title=title, form=form, table=None,
        words=f"{audience(book)} {warning}", button=gettext("Cancel this book"),
    )  # fmt: skip


def change_row(change: PriceChange) -> tuple[str, str, str, str]:
    """Return a change as a row of the page's table."""
    if change.is_unusual:
        mark = format_html(UNUSUAL, gettext("unusual: %(why)s") % {"why": change.reason})
        return (change.subject, change.old, change.new, mark)
    note = gettext("unchanged") if change.old_nanos == change.new_nanos else ""
    return (change.subject, change.old, change.new, note)


def audience(book: PriceBook) -> str:
    """Return whom the book applies to, as a sentence."""
    if book.organization is None:
        return gettext("List prices, for all organizations without a contract.")
    if book.ends_at is None:
        return gettext("Contract prices of %(name)s.") % {"name": book.organization}
    time = f"{book.ends_at:%Y-%m-%d %H:%M}"
    words = gettext("Contract prices of %(name)s until %(time)s UTC.")
    return words % {"name": book.organization, "time": time}


def _changes(book: PriceBook, form: PublishForm) -> list[PriceChange]:
    chosen = form.cleaned_data.get("effective_at") if form.is_bound else book.effective_at
    return changes_in(book, selectors.prices(book), chosen or timezone.now())


def _done(request: HttpRequest, book: PriceBook, words: str) -> HttpResponse:
    messages.success(request, words % {"book": book})
    return redirect(row_url("admin:pricing_pricebook_change", book.pk))
