"""The way in: to the overview of one's first organization."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from control.organizations import selectors as tenants
from web.console.page import address, signed_in


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """Send a member to their oldest organization, and tell others that they have none."""
    membership = tenants.memberships(signed_in(request)).first()
    if membership is None:
        return render(request, "console/no_organization.html", status=404)
    return redirect(address(membership.organization, "overview"))
