"""The page on which an operator confirms an action: what follows from it, a reason or an amount,
and a form that acts once however often it is sent."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextInputWidget

from control.admin.base import operator, row_url
from control.admin.fields import DollarsField
from control.errors import ServiceError
from control.forms import REASON_MAX

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

TEMPLATE = "admin/confirm.html"


def new_form_id() -> str:
    """Return what a freshly opened form is known by: sent twice, it acts once."""
    return f"admin:{uuid.uuid4()}"


class ReasonForm(forms.Form):
    """Why something is done."""

    reason = forms.CharField(
        label=_("Reason"), max_length=REASON_MAX, widget=UnfoldAdminTextInputWidget
    )


class AmountForm(ReasonForm):
    """The amount and the reason."""

    amount_nanos = DollarsField(label=_("Amount"), help_text=_("In dollars, such as 25 or 0.50."))
    idempotency_key = forms.CharField(widget=forms.HiddenInput, initial=new_form_id)

    field_order = ("amount_nanos", "reason")


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question with its form, and the action that the form's values are passed to. `table`
    shows what the action rests on; `after` is the address of the page that follows, the row's own
    if empty."""

    title: "StrOrPromise"
    words: "StrOrPromise"
    form: type[forms.Form]
    verb: Callable[..., object]
    table: dict[str, Any] | None = None
    after: str = ""


def confirm(
    admin: ModelAdmin, request: HttpRequest, row: Any, confirmation: Confirmation
) -> HttpResponse:
    """Show the form; once it is sent, do what it says or show why not."""
    form = confirmation.form(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            confirmation.verb(actor=operator(request), **form.cleaned_data)
        except ServiceError as error:
            form.add_error(error.param if error.param in form.fields else None, error.message)
        else:
            done = gettext("%(action)s: done for %(row)s.")
            messages.success(request, done % {"action": confirmation.title, "row": row})
            return redirect(confirmation.after or change_url(admin, row))
    return confirmation_page(
        admin, request, row, title=confirmation.title, words=confirmation.words, form=form,
        table=confirmation.table,
    )  # fmt: skip


def confirmation_page(
    admin: ModelAdmin, request: HttpRequest, row: Any, **context: Any
) -> TemplateResponse:
    """Return the page that asks to confirm an action on a row: title, words, form, and where given
    table and button."""
    shared = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "original": row,
        "back": change_url(admin, row),
    }
    return TemplateResponse(request, TEMPLATE, {**shared, **context})


def change_url(admin: ModelAdmin, row: Any) -> str:
    """Return the address of a row's own page."""
    return row_url(f"admin:{admin.opts.app_label}_{admin.opts.model_name}_change", row.pk)
