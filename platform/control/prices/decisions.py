"""The pages where an operator puts a price book in force, or takes it back before it is."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.safestring import mark_safe
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSplitDateTimeWidget, UnfoldAdminTextInputWidget

from control.admin.pages import row_url
from control.admin.rows import operator
from control.errors import ServiceError
from control.prices import selectors, services
from control.prices.comparison import Change, changes_of, sentence_of
from control.prices.models import PriceBook

TEMPLATE = "admin/prices/decide.html"
UNUSUAL = mark_safe('<strong class="text-red-600 dark:text-red-500">unusual</strong>')
HEADERS = ("Price per million tokens", "In force then", "From this book", "")


class PublishForm(forms.Form):
    """When a book takes effect, and the words that confirm what looks mis-keyed."""

    effective_at = forms.SplitDateTimeField(
        required=False,
        widget=UnfoldAdminSplitDateTimeWidget,
        help_text="UTC. Left empty, it takes effect at once.",
    )
    confirmation = forms.CharField(required=False, widget=UnfoldAdminTextInputWidget)

    def ask_for(self, sentence: str) -> None:
        """Say what is to be typed; without a sentence nothing is."""
        self.fields[
            "confirmation"
        ].help_text = f"Unusual prices. If they are meant, type: {sentence}"
        self.fields["confirmation"].widget.attrs["autocomplete"] = "off"


def publish_page(admin: ModelAdmin, request: HttpRequest, book: PriceBook) -> HttpResponse:
    """Show old and new prices side by side, and publish the book when it is sent."""
    form = PublishForm(request.POST or None, initial={"effective_at": book.effective_at})
    if request.method == "POST" and form.is_valid():
        try:
            services.publish_book(actor=operator(request), book=book, **form.cleaned_data)
        except ServiceError as error:
            form.add_error(error.param if error.param in form.fields else None, error.message)
        else:
            return _done(request, book, "is published")
    changes = _changes(book, form)
    if unusual := [change for change in changes if change.is_unusual]:
        form.ask_for(sentence_of(book, unusual))
    else:
        del form.fields["confirmation"]
    table = {"headers": HEADERS, "rows": [row_of(change) for change in changes]}
    words = f"{audience(book)} From then on the book never changes; another one supersedes it."
    return _page(
        admin, request, book, title=f"Publish {book}", form=form, table=table, words=words,
        button="Publish",
    )  # fmt: skip


def cancel_page(admin: ModelAdmin, request: HttpRequest, book: PriceBook) -> HttpResponse:
    """Ask once, and take the book back when it is sent."""
    form = forms.Form(request.POST or None)
    if request.method == "POST":
        try:
            services.cancel_book(actor=operator(request), book=book)
        except ServiceError as error:
            messages.error(request, error.message)
        else:
            return _done(request, book, "is cancelled")
    words = (
        f"{audience(book)} They are to take effect on {book.effective_at:%Y-%m-%d %H:%M} UTC."
        " Cancelled, the prices before them stay in force; the book stays on record."
    )
    return _page(
        admin, request, book, title=f"Cancel {book}", form=form, table=None, words=words,
        button="Cancel this book",
    )  # fmt: skip


def row_of(change: Change) -> tuple[str, str, str, str]:
    """Return a change as the page shows it."""
    if change.is_unusual:
        return (change.subject, change.old, change.new, UNUSUAL)
    note = "as before" if change.old_nanos == change.new_nanos else ""
    return (change.subject, change.old, change.new, note)


def audience(book: PriceBook) -> str:
    """Return for whom the book holds, as a sentence."""
    if book.organization is None:
        return "List prices, for everybody without a contract."
    end = f" until {book.ends_at:%Y-%m-%d %H:%M} UTC" if book.ends_at else ""
    return f"Contract prices of {book.organization}{end}."


def _changes(book: PriceBook, form: PublishForm) -> list[Change]:
    asked_at = form.cleaned_data.get("effective_at") if form.is_bound else book.effective_at
    return changes_of(book, selectors.prices(book), asked_at or timezone.now())


def _done(request: HttpRequest, book: PriceBook, words: str) -> HttpResponse:
    messages.success(request, f"{book} {words}.")
    return redirect(row_url("admin:prices_pricebook_change", book.pk))


def _page(
    admin: ModelAdmin, request: HttpRequest, book: PriceBook, **context: Any
) -> TemplateResponse:
    shared = {**admin.admin_site.each_context(request), "opts": admin.opts, "original": book}
    return TemplateResponse(request, TEMPLATE, {**shared, **context, "object": book})
