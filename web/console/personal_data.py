"""A person's own data: export and erasure."""

from allauth.account.decorators import reauthentication_required
from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_POST

from control.api.streaming import whole_export
from control.data_requests import erasure, services
from control.data_requests.models import RequestKind
from control.errors import Conflict
from control.permissions import Actor
from web.console.base import require_login
from web.console.forms import apply_or_form_error


class EraseForm(forms.Form):
    """The account's email address, typed to confirm."""

    confirmation = forms.CharField(
        label=_("Type your account's email address to confirm"),
        max_length=254,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )


@require_GET
@login_required
def personal_data(request: HttpRequest) -> HttpResponse:
    """Show the person's requests, and what an erasure would do."""
    return render_personal_data(request, EraseForm())


@require_POST
@login_required
def personal_data_export(request: HttpRequest) -> HttpResponse:
    """Request an export."""
    user = require_login(request)
    try:
        services.create_request(
            actor=Actor.for_user(user), asked_by=user, user=user, kind=RequestKind.EXPORT
        )
    except Conflict:
        messages.error(request, gettext("An export is already being prepared."))
    else:
        messages.success(
            request,
            gettext("Your data export is being prepared. It appears below when it is ready."),
        )
    return redirect("console:personal_data")


@require_GET
@login_required
def personal_data_download(request: HttpRequest, request_id: str) -> HttpResponseBase:
    """Send a person's own export."""
    user = require_login(request)
    data_request = services.get_request(user, request_id)
    return whole_export(
        request,
        lambda: services.take_export(actor=Actor.for_user(user), request=data_request),
        content_type="application/zip",
        name=data_request.file_name,
    )


@require_POST
@login_required
@reauthentication_required
def personal_data_erase(request: HttpRequest) -> HttpResponse:
    """Request the erasure of the account."""
    user, form = require_login(request), EraseForm(request.POST)
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: services.create_request(
            actor=Actor.for_user(user),
            asked_by=user,
            user=user,
            kind=RequestKind.ERASURE,
            confirmation=form.cleaned_data["confirmation"],
        ),
    ):
        messages.success(
            request,
            gettext("Your account is being erased. You will be signed out in a moment."),
        )
        return redirect("console:personal_data")
    return render_personal_data(request, form)


def render_personal_data(request: HttpRequest, form: EraseForm) -> HttpResponse:
    """Return the page, with the form as it was submitted."""
    user = require_login(request)
    data_requests = services.requests_of(user)
    context = {
        "data_requests": data_requests,
        "is_busy": any(each.is_open for each in data_requests),
        "obstacles": erasure.obstacles(user),
        "consequences": erasure.consequences(user),
        "form": form,
    }
    status = 400 if form.errors else 200
    return render(request, "console/personal_data.html", context, status=status)
