"""Another organization, made by who will own it."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from control.organizations.models import Organization
from control.organizations.services import create_organization
from control.permissions import Actor
from web.console.page import address, signed_in
from web.console.refusals import carried_out
from web.console.settings_forms import TitleForm


@login_required
@require_http_methods(["GET", "POST"])
def organization_new(request: HttpRequest) -> HttpResponse:
    """The form, and after it the overview of the new organization."""
    user = signed_in(request)
    form = TitleForm(request.POST or None)
    made: list[Organization] = []

    def make() -> None:
        name = form.cleaned_data["name"]
        made.append(create_organization(actor=Actor.for_user(user), name=name, owner=user))

    if form.is_valid() and carried_out(form, make):
        return redirect(address(made[0], "overview"))
    status = 400 if form.errors else 200
    return render(request, "console/organization_new.html", {"form": form}, status=status)
