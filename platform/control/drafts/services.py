"""Keeps what was typed into a form that could not be saved yet: encrypted in the session, for who
the form was rendered for, for half an hour, without passwords and secrets."""

import json
import re
import time
from dataclasses import asdict, dataclass
from typing import Any

from allauth.core import ratelimit
from django.contrib import messages
from django.contrib.auth import user_logged_in
from django.http import HttpRequest
from django.utils.translation import gettext

from control import encryption
from control.drafts.origin import FIELD, origin_of, person_id

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
