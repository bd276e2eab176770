"""The page that the email of an operator invitation links to."""

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from control.accounts.models import User
from control.errors import Conflict, ObjectNotFound
from control.operators.selectors import invitation_by_digest
from control.operators.services import accept_operator_invitation
from control.organizations.invitation_page import render_invitation
from control.organizations.members import invitation_digest


@never_cache
@require_http_methods(["GET", "POST"])
def operator_invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Show an invitation and its state, to people who are not signed in too; a POST accepts it. An
    unknown secret is 404."""
    status = 200
    if request.method == "POST":
        if not isinstance(request.user, User):
            return redirect_to_login(request.path)
        try:
            accept_operator_invitation(user=request.user, secret=secret)
        except (Conflict, ObjectNotFound) as error:
            status = error.status
        else:
            return redirect("admin:index")
    return render_invitation(
        request,
        invitation_by_digest(invitation_digest(secret)),
        name=gettext("the operators of this platform"),
        is_member=bool(getattr(request.user, "operator_role", "")),
        home_url=reverse("admin:index"),
        status=status,
    )
