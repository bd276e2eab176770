"""Step-up authentication: actions that move money, create keys or set prices require a recent
sign-in, so that a stolen or forgotten session cannot perform them. Operators' sessions end within
half a day.

A form that needs a new proof is kept in the session, encrypted, while the user reauthenticates,
and is then carried out. It waits for that one proof only, and for a few minutes; after that its
page shows it again (`control.drafts`).
"""

import time
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from allauth.account.authentication import get_authentication_records
from allauth.account.internal.flows.reauthentication import STATE_SESSION_KEY
from allauth.account.utils import get_next_redirect_url
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib.auth import logout, user_logged_in
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect
from django.urls import resolve, reverse
from django.utils.deprecation import MiddlewareMixin

from control import encryption
from control.drafts.middleware import keep_draft
from control.drafts.origin import origin_of, page_of_form
from control.error_pages import service_unavailable
from control.errors import is_database_unavailable

RECENT = timedelta(minutes=15)
"""The time for which a sign-in or reauthentication is recent."""
KEPT = timedelta(minutes=5)
"""The time that a form waits for a reauthentication."""
PURPOSE = "a form that waits for a reauthentication"
OPERATOR_SESSION = timedelta(hours=12)
SIGNED_IN_AT = "signed_in_at"


def is_recent(request: HttpRequest) -> bool:
    """Return whether the user signed in or reauthenticated within `RECENT`."""
    records = get_authentication_records(request, request.user)
    latest = max(request.session.get(SIGNED_IN_AT, 0), *(record["at"] for record in records), 0)
    return time.time() - latest < RECENT.total_seconds()


def ask(request: HttpRequest, back: str) -> HttpResponseRedirect:
    """Redirect to the reauthentication page, or to SSO for who has no other method, and keep the
    form in the session. If it cannot be carried out, the page that it is on shows it again; `back`
    is the page to continue on for a form that does not say which one that is."""
    origin = origin_of(request)
    back = origin.page if origin else back
    keep_draft(request)
    methods = get_adapter().get_reauthentication_methods(request.user)
    if not methods:
        # A new request returns from the provider, so the user has to send the form again.
        return _to_sso(back)
    form = {
        "path": request.path_info,
        "query": request.GET.urlencode(),
        "form": encryption.encrypt(request.POST.urlencode(), purpose=PURPOSE),
        "back": back,
        "at": time.time(),
    }
    callback = f"{__name__}.{carry_out.__name__}"
    request.session[STATE_SESSION_KEY] = {"callback": callback, "state": form}
    return HttpResponseRedirect(f"{methods[0]['url']}?{urlencode({'next': back})}")


def _to_sso(back: str) -> HttpResponseRedirect:
    return HttpResponseRedirect(f"{reverse('sso_begin')}?{urlencode({'next': back})}")


def carry_out(request: HttpRequest, state: dict[str, Any]) -> HttpResponseBase:
    """Carry out the form that waited for this reauthentication. An abandoned form is not sent by
    a reauthentication for another purpose."""
    is_for_this_form = get_next_redirect_url(request) == state["back"]
    if not is_for_this_form or time.time() - state["at"] > KEPT.total_seconds():
        return redirect(get_next_redirect_url(request) or state["back"])
    try:
        form = encryption.decrypt(state["form"], purpose=PURPOSE)
    except encryption.DecryptionError:
        return redirect(state["back"])
    request.path = request.path_info = state["path"]
    request.META["QUERY_STRING"] = state["query"]
    request.GET, request.POST = QueryDict(state["query"]), QueryDict(form)
    match = request.resolver_match = resolve(state["path"])
    response: HttpResponseBase = match.func(request, *match.args, **match.kwargs)
    return response


class StepUpMiddleware(MiddlewareMixin):
    """Handles account pages that require a reauthentication: their forms are kept too, and people
    without another method go to SSO."""

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        """Ask for a proof in the same way as for other forms."""
        is_required = isinstance(exception, ReauthenticationRequired)
        if not is_required or not request.user.is_authenticated:
            return None
        if request.method == "POST":
            return ask(request, back=page_of_form(request))
        has_methods = get_adapter().get_reauthentication_methods(request.user)
        return None if has_methods else _to_sso(request.get_full_path())


class OperatorSessionMiddleware(MiddlewareMixin):
    """Ends an operator's session half a day after the sign-in, active or not."""

    def process_request(self, request: HttpRequest) -> HttpResponseBase | None:
        """Log out an operator whose session is too old; return 503 if sessions cannot be read."""
        if settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return None
        try:
            age_seconds = time.time() - request.session.get(SIGNED_IN_AT, 0)
            is_old = age_seconds >= OPERATOR_SESSION.total_seconds()
            if is_old and request.user.is_authenticated and request.user.is_staff:
                logout(request)
        except (DatabaseError, InterfaceError) as error:
            if is_database_unavailable(error):
                return service_unavailable(request)
            raise
        return None


def _record_sign_in_time(sender: object, request: HttpRequest, **_: Any) -> None:
    request.session[SIGNED_IN_AT] = time.time()


user_logged_in.connect(_record_sign_in_time, dispatch_uid="control.reauthentication")
