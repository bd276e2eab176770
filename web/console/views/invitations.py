"""The page that the mail of an invitation leads to."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from control.errors import Conflict
from control.organizations.members import accept_invitation
from web.console.page import address, signed_in


@login_required
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Ask whether to join, and join. A secret that opens nothing answers 404."""
    if request.method == "GET":
        return render(request, "console/invitation.html")
    try:
        seat = accept_invitation(user=signed_in(request), secret=secret)
    except Conflict as error:
        messages.error(request, error.message)
        return redirect("console:home")
    return redirect(address(seat.organization, "overview"))
