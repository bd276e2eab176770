"""Views outside an organization: the page after sign-in, creating an organization, accepting an
invitation."""

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from control.accounts.models import User
from control.errors import Conflict, ObjectNotFound
from control.organizations import selectors as tenants
from control.organizations.invitation_page import render_invitation
from control.organizations.members import accept_invitation, invitation_digest
from control.organizations.models import Organization
from control.organizations.services import create_organization
from control.permissions import Actor
from web.console.base import address, require_login
from web.console.forms import apply_or_form_error, status_of
from web.console.settings import TitleForm


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the member's oldest organization, or show that there is none."""
    membership = tenants.memberships(require_login(request)).first()
    if membership is None:
        return render(request, "console/no_organization.html", status=404)
    return redirect(address(membership.organization, "overview"))


@login_required
@require_http_methods(["GET", "POST"])
def organization_new(request: HttpRequest) -> HttpResponse:
    """Show the form; a POST creates an organization and redirects to its overview."""
    user = require_login(request)
    form = TitleForm(request.POST or None)
    made: list[Organization] = []

    def make() -> None:
        name = form.cleaned_data["name"]
        made.append(create_organization(actor=Actor.for_user(user), name=name, owner=user))

    if form.is_valid() and apply_or_form_error(form, make):
        return redirect(address(made[0], "overview"))
    context = {"form": form}
    return render(request, "console/organization_new.html", context, status=status_of(form))


@never_cache
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Show an invitation and its state, to people who are not signed in too; a POST accepts it. An
    unknown secret is 404."""
    status = 200
    if request.method == "POST":
        if not isinstance(request.user, User):
            return redirect_to_login(request.path)
        try:
            membership = accept_invitation(user=request.user, secret=secret)
        except (Conflict, ObjectNotFound) as error:
            status = error.status
        else:
            return redirect(address(membership.organization, "overview"))
    found = tenants.invitation_by_digest(invitation_digest(secret))
    if found is None:
        return render_invitation(request, None)
    organization = found.organization
    return render_invitation(
        request,
        found,
        name=organization.name,
        is_member=isinstance(request.user, User)
        and tenants.is_member(organization, request.user.email),
        home_url=address(organization, "overview"),
        status=status,
    )
