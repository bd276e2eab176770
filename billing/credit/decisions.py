"""The page on which an operator decides about money: an amount, a reason, and a form that acts
once however often it is sent."""

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

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

TEMPLATE = "admin/credit/decide.html"
REASON_MAX = 200


def new_form_id() -> str:
    """Return what a freshly opened form is known by: sent twice, it acts once."""
    return f"admin:{uuid.uuid4()}"


class ReasonForm(forms.Form):
    """Why something is done."""

    reason = forms.CharField(
        label=_("Reason"), max_length=REASON_MAX, widget=UnfoldAdminTextInputWidget
    )


class AmountForm(ReasonForm):
    """How much, and why."""

    amount_nanos = DollarsField(label=_("Amount"), help_text=_("In dollars, such as 25 or 0.50."))
    idempotency_key = forms.CharField(widget=forms.HiddenInput, initial=new_form_id)

    field_order = ("amount_nanos", "reason")


@dataclass(frozen=True, slots=True)
class Decision:
    """What is asked, and the verb that is done when it is sent, with what the form holds."""

    title: "StrOrPromise"
    words: "StrOrPromise"
    form: type[forms.Form]
    verb: Callable[..., object]


def decide(admin: ModelAdmin, request: HttpRequest, row: Any, decision: Decision) -> HttpResponse:
    """Show the form; once it is sent, do what it says or show why not."""
    form = decision.form(request.POST or None)
    back = row_url(f"admin:{admin.opts.app_label}_{admin.opts.model_name}_change", row.pk)
    if request.method == "POST" and form.is_valid():
        try:
            decision.verb(actor=operator(request), **form.cleaned_data)
        except ServiceError as error:
            form.add_error(error.param if error.param in form.fields else None, error.message)
        else:
            done = gettext("%(action)s: done for %(row)s.")
            messages.success(request, done % {"action": decision.title, "row": row})
            return redirect(back)
    context = {
        **admin.admin_site.each_context(request),
        "opts": admin.opts,
        "original": row,
        "title": decision.title,
        "words": decision.words,
        "form": form,
        "back": back,
    }
    return TemplateResponse(request, TEMPLATE, context)
