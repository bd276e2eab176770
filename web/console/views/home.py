"""The way in: to the overview of one's first organization."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from control.tenants import selectors as tenants
from control.tenants.models import User
from web.console.page import address


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Send a member to their oldest organization, and tell others that they have none."""
    assert isinstance(request.user, User)
    membership = tenants.memberships(request.user).first()
    if membership is None:
        return render(request, "console/no_organization.html", status=404)
    return redirect(address(membership.organization, "overview"))
