"""The page that the email of an operator invitation links to."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from control.accounts.models import User
from control.errors import Conflict
from control.operators.services import accept_operator_invitation


@login_required
@require_http_methods(["GET", "POST"])
def operator_invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Ask whether to accept the invitation, or accept it. An invalid secret gets a 404."""
    if request.method == "GET":
        return render(request, "operators/invitation.html")
    try:
        accept_operator_invitation(user=cast(User, request.user), secret=secret)
    except Conflict as error:
        messages.error(request, error.message)
    return redirect("admin:index")
