"""Step-up: what moves money, makes keys or sets prices asks for a recent proof of who is there, so
that a stolen or forgotten session does none of it. And operators' sessions end within half a day.

A form that came too late is kept in its session while its sender proves again who they are, and is
then carried out; it counts for that one proof, and for some minutes.
"""

import time
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from allauth.account.authentication import get_authentication_records
from allauth.account.internal.flows.reauthentication import STATE_SESSION_KEY
from allauth.account.utils import get_next_redirect_url
from django.conf import settings
from django.contrib.auth import logout, user_logged_in
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect
from django.urls import resolve, reverse
from django.utils.deprecation import MiddlewareMixin

from control.error_pages import service_unavailable
from control.errors import is_database_unavailable

RECENT = timedelta(minutes=15)
"""How long a proof counts."""
KEPT = timedelta(minutes=5)
"""How long a form waits for one."""
OPERATOR_SESSION = timedelta(hours=12)
SIGNED_IN_AT = "signed_in_at"
BY_SSO = "sso"
"""What a session's records call a sign-in by an organization's provider."""


def is_recent(request: HttpRequest) -> bool:
    """Tell whether who asks signed in lately, or proved in this session who they are since."""
    records = get_authentication_records(request, request.user)
    at = max(request.session.get(SIGNED_IN_AT, 0), *(each["at"] for each in records), 0)
    return time.time() - at < RECENT.total_seconds()


def ask(request: HttpRequest, back: str) -> HttpResponseRedirect:
    """Lead to where a person proves again who they are, as they did when they came, and keep their
    form meanwhile. `back` is where they go on if it cannot be carried out: a page, no form."""
    records = get_authentication_records(request, request.user)
    methods = get_adapter().get_reauthentication_methods(request.user)
    if not methods or (records and records[-1]["method"] == BY_SSO):
        # Another request comes back from the provider: the form is sent again by hand.
        return HttpResponseRedirect(f"{reverse('sso_begin')}?{urlencode({'next': back})}")
    form = {
        "path": request.path_info,
        "query": request.GET.urlencode(),
        "form": request.POST.urlencode(),
        "back": back,
        "at": time.time(),
    }
    callback = f"{__name__}.{carry_out.__name__}"
    request.session[STATE_SESSION_KEY] = {"callback": callback, "state": form}
    return HttpResponseRedirect(f"{methods[0]['url']}?{urlencode({'next': back})}")


def carry_out(request: HttpRequest, state: dict[str, Any]) -> HttpResponseBase:
    """Carry out the form that waited for this proof, and no other: one that was given up is not
    sent by a proof that was asked for something else."""
    is_asked_for_it = get_next_redirect_url(request) == state["back"]
    if not is_asked_for_it or time.time() - state["at"] > KEPT.total_seconds():
        return redirect(get_next_redirect_url(request) or state["back"])
    request.path = request.path_info = state["path"]
    request.META["QUERY_STRING"] = state["query"]
    request.GET, request.POST = QueryDict(state["query"]), QueryDict(state["form"])
    found = request.resolver_match = resolve(state["path"])
    response: HttpResponseBase = found.func(request, *found.args, **found.kwargs)
    return response


class OperatorSessionMiddleware(MiddlewareMixin):
    """Ends an operator's session half a day after they signed in, whatever they did in it."""

    def process_request(self, request: HttpRequest) -> HttpResponseBase | None:
        """Sign out who has been in for too long; 503 where sessions cannot be read."""
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


def _note_sign_in(sender: object, request: HttpRequest, **_: Any) -> None:
    request.session[SIGNED_IN_AT] = time.time()


user_logged_in.connect(_note_sign_in, dispatch_uid="control.reauthentication")
