"""The way of a form that comes too late: it is kept, its sender signs in, and the page of the form
is shown with what was typed."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    JsonResponse,
)
from django.middleware.csrf import REASON_BAD_ORIGIN, REASON_NO_CSRF_COOKIE
from django.shortcuts import redirect, render, resolve_url
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin
from django.utils.html import escape
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext

from control.drafts.origin import origin_of, page_of_form, person_id
from control.drafts.refill import RefilledPage, refill
from control.drafts.services import drafts_of, forget_draft, keep_draft
from control.error_pages import error_body, is_for_programs

VALUE_SHOWN_MAX = 200
FIELDS_SHOWN_MAX = 20
CSRF_MESSAGE = "The CSRF token is missing or out of date."


class DraftMiddleware(MiddlewareMixin):
    """Keeps forms that are answered with the sign-in page, and fills their pages afterwards."""

    def process_view(self, request: HttpRequest, *_: Any) -> None:
        """Tell a person what was not saved, on the page of the form."""
        request.drafts = []  # type: ignore[attr-defined]
        if request.method != "GET" or settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return
        request.drafts = drafts_of(request)  # type: ignore[attr-defined]
        if request.drafts:  # type: ignore[attr-defined]
            messages.warning(request, _reason(request))

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Fill the forms of a page; send a form's sender to sign in and then back to its page."""
        if request.method == "POST":
            return self._after_form(request, response)
        drafts = getattr(request, "drafts", ())
        kind = response.headers.get("Content-Type", "")
        if drafts and isinstance(response, HttpResponse) and kind.startswith("text/html"):
            page = response.content.decode(response.charset)
            filled = []
            for each in drafts:
                where = request.get_full_path()
                filled.append(refill(page, where, each.path, each.fields, each.omitted))
                page = filled[-1].text
            words = notice(_reason(request), filled)
            page = page.replace(escape(_reason(request)), escape(words), 1)
            response.content = page.encode(response.charset)
        return response

    def _after_form(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if is_for_programs(request) or not hasattr(request, "session"):
            return response
        if not person_id(request) and _is_to_sign_in(request, response):
            keep_draft(request)
            return to_sign_in(request)
        if person_id(request) and not hasattr(request, "is_draft_kept"):
            forget_draft(request)
        return response


def notice(reason: str, pages: Sequence[RefilledPage]) -> str:
    """Return what a person reads who is back at forms that were not saved: why, and what to do."""
    if any(page.is_filled for page in pages):
        words = [reason, gettext("Check what is filled in below and submit it again.")]
    else:
        words = [reason, gettext("Do it again.")]
    if secrets := [label for page in pages for label in page.secrets]:
        again = gettext("Passwords and secrets are not kept. Enter them again: %(fields)s.")
        words.append(again % {"fields": ", ".join(secrets)})
    unfilled = [
        f"{name}: {' '.join(values)[:VALUE_SHOWN_MAX]}"
        for page in pages
        for name, values in page.unfilled.items()
    ]
    if unfilled:
        again = gettext("These fields are not on the page anymore. Enter them again: %(fields)s.")
        words.append(again % {"fields": "; ".join(unfilled[:FIELDS_SHOWN_MAX])})
    return " ".join(words)


def _reason(request: HttpRequest) -> str:
    if person_id(request):
        return gettext("This was not saved, because you had to sign in again.")
    return gettext("This was not sent, because the page was open for too long.")


def to_sign_in(request: HttpRequest) -> HttpResponseRedirect:
    """Return the redirect to the sign-in page, and from there to the page of the form."""
    query = urlencode({REDIRECT_FIELD_NAME: page_of_form(request)})
    return HttpResponseRedirect(f"{resolve_url(settings.LOGIN_URL)}?{query}")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """Answer a form whose CSRF token does not fit, because its page was opened before a sign-in or
    in another session: back to the form, where it is filled in, or past a sign-in that is done.

    A form from another site is kept by nobody.
    """
    if is_for_programs(request):
        body = error_body(CSRF_MESSAGE, "permission_denied", code="csrf_failed")
        return JsonResponse(body, status=403)
    origin, who = origin_of(request), person_id(request)
    is_from_elsewhere = reason.startswith((REASON_BAD_ORIGIN.split("%")[0], "Referer checking"))
    if origin is None or is_from_elsewhere:
        return _refused(request, gettext("The page was open for too long."))
    if not origin.person_id and who:
        return redirect(_next(request))
    if who and origin.person_id != who:
        return _refused(request, gettext("You are signed in with another account by now."))
    if reason == REASON_NO_CSRF_COOKIE and not request.COOKIES:
        words = gettext("Your browser sent no cookies. Allow them for this site.")
        return _refused(request, words)
    keep_draft(request)
    return to_sign_in(request) if origin.person_id and not who else redirect(origin.page)


def _refused(request: HttpRequest, reason: str) -> HttpResponseBase:
    context = {"reason": reason, "page_url": page_of_form(request)}
    return render(request, "csrf_failure.html", context, status=403)


def _next(request: HttpRequest) -> str:
    """Return where a sign-in leads that somebody does a second time."""
    sent = request.POST.get(REDIRECT_FIELD_NAME) or request.GET.get(REDIRECT_FIELD_NAME, "")
    is_ours = url_has_allowed_host_and_scheme(sent, allowed_hosts={request.get_host()})
    return sent if is_ours else resolve_url(settings.LOGIN_REDIRECT_URL)


def _is_to_sign_in(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Return whether a response sends to a sign-in page, to come back to what was sent."""
    where = urlsplit(response.headers.get("Location", ""))
    if where.path not in (resolve_url(settings.LOGIN_URL), reverse("admin:login")):
        return False
    return parse_qs(where.query).get(REDIRECT_FIELD_NAME) == [request.get_full_path()]
