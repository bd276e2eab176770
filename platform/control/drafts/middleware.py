"""The way of a form that comes too late: it is kept, its sender signs in, and the page of the form
is shown with what was typed.

The session keeps it encrypted, for who the form was rendered for, for half an hour, without
passwords and secrets.
"""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from allauth.core import ratelimit
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import REDIRECT_FIELD_NAME, user_logged_in
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

from control import encryption
from control.drafts.origin import FIELD, origin_of, page_of_form, person_id
from control.drafts.refill import RefilledPage, refill
from control.error_pages import error_body
from control.request_context import is_for_programs

SESSION_KEY = "unsaved_forms"
PURPOSE = "what was typed into a form"
KEPT_SECONDS = 30 * 60
FORMS_MAX = 4
CHARACTERS_MAX = 2**20
"""Characters of a form as JSON: the metadata of a SAML provider and what JSON escapes of it."""
ANONYMOUS_CHARACTERS_MAX = 2**13
"""The same for a page that was rendered for nobody."""
CSRF_FIELD = "csrfmiddlewaretoken"
NEVER_KEPT = re.compile(rf"^{CSRF_FIELD}$|password|secret|credential", re.IGNORECASE)
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


@dataclass(frozen=True, slots=True)
class Draft:
    """A form that was not saved: its page, the path that it is sent to, whose it is, and its fields
    as they were typed. `omitted` are the names of fields that were filled in and are not kept."""

    page: str
    path: str
    person_id: str
    fields: dict[str, list[str]]
    kept_at: float
    omitted: tuple[str, ...] = ()


def keep_draft(request: HttpRequest) -> bool:
    """Keep the form that was sent; return whether it is kept. A form that does not say whose it is
    or that is of somebody else than who is signed in is not; neither is one that is too long or one
    too many of people who are not signed in, and the next page says so."""
    origin, who = origin_of(request), person_id(request)
    if origin is None or who not in ("", origin.person_id):
        return False
    fields: dict[str, list[str]] = {}
    omitted = []
    for name, values in request.POST.lists():
        if not NEVER_KEPT.search(name):
            fields[name] = [str(value) for value in values]
        elif any(values) and name != CSRF_FIELD:
            omitted.append(name)
    fields.pop(FIELD, None)
    draft = Draft(origin.page, request.path, origin.person_id, fields, time.time(), tuple(omitted))
    text = json.dumps(asdict(draft), ensure_ascii=False)
    is_too_long = len(text) > (CHARACTERS_MAX if origin.person_id else ANONYMOUS_CHARACTERS_MAX)
    if is_too_long or (not who and not ratelimit.consume(request, action="draft")):
        words = gettext(
            "This was not saved, and what you entered could not be kept: it is too long, or too"
            " many forms were sent from your network. Enter it again."
        )
        messages.warning(request, words)
        return False
    others = [sealed for sealed, each in _fresh(request) if each.path != request.path]
    if len(others) >= FORMS_MAX:
        messages.warning(request, gettext("An earlier form that was not saved is no longer kept."))
    sealed = [request.path, encryption.encrypt(text, purpose=PURPOSE)]
    request.session[SESSION_KEY] = [*others, sealed][-FORMS_MAX:]
    if not who:
        request.session.set_expiry(KEPT_SECONDS)
    request.is_draft_kept = True  # type: ignore[attr-defined]
    return True


def drafts_of(request: HttpRequest) -> list[Draft]:
    """Return the drafts of who is signed in for the page that is shown."""
    page, who = request.get_full_path(), person_id(request)
    return [each for _, each in _fresh(request) if (each.page, each.person_id) == (page, who)]


def forget_draft(request: HttpRequest) -> None:
    """Forget the draft of the form that was sent: it is sent, or shown again with its errors."""
    stored = request.session.get(SESSION_KEY, [])
    left = [each for each in stored if each[0] != request.path]
    if len(left) < len(stored):
        request.session[SESSION_KEY] = left


def _fresh(request: HttpRequest) -> list[tuple[Any, Draft]]:
    """Return what is stored, with its drafts, and delete what has expired."""
    stored = request.session.get(SESSION_KEY, [])
    fresh = []
    for sealed in stored:
        try:
            draft = Draft(**json.loads(encryption.decrypt(sealed[1], purpose=PURPOSE)))
        except encryption.DecryptionError:
            continue
        if time.time() - draft.kept_at < KEPT_SECONDS:
            fresh.append((sealed, draft))
    if len(fresh) < len(stored):
        request.session[SESSION_KEY] = [sealed for sealed, _ in fresh]
    return fresh


def _forget_others(sender: object, request: HttpRequest, user: Any, **_: Any) -> None:
    """Forget what somebody else had typed before this person signed in, and let the session last as
    any other."""
    if request.session.get("_session_expiry") == KEPT_SECONDS:
        request.session.set_expiry(None)
    if request.session.get(SESSION_KEY):
        own = [sealed for sealed, each in _fresh(request) if each.person_id == str(user.pk)]
        request.session[SESSION_KEY] = own


user_logged_in.connect(_forget_others, dispatch_uid="control.drafts")
