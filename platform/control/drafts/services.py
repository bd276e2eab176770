"""Keeps what was typed into a form that could not be saved yet: encrypted in the session, for who
the form was rendered for, for half an hour, without passwords and secrets."""

import json
import re
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth import user_logged_in
from django.http import HttpRequest

from control import encryption
from control.drafts.origin import FIELD, origin_of, person_id

SESSION_KEY = "unsaved_forms"
PURPOSE = "what was typed into a form"
KEPT = timedelta(minutes=30)
FORMS_MAX = 4
CHARACTERS_MAX = 2**18
NEVER_KEPT = re.compile(r"^csrfmiddlewaretoken$|password|secret|credential", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Draft:
    """A form that was not saved: its page, the path that it is sent to, whose it is, and its fields
    as they were typed."""

    page: str
    path: str
    person_id: str
    fields: dict[str, list[str]]
    kept_at: float


def keep_draft(request: HttpRequest) -> bool:
    """Keep the form that was sent; return whether it is kept. A form that does not say whose it is,
    that is of somebody else than who is signed in, or that is too long, is not."""
    origin, who = origin_of(request), person_id(request)
    if origin is None or who not in ("", origin.person_id):
        return False
    fields = {
        name: [str(value) for value in values]
        for name, values in request.POST.lists()
        if name != FIELD and not NEVER_KEPT.search(name)
    }
    draft = Draft(origin.page, request.path, origin.person_id, fields, time.time())
    text = json.dumps(asdict(draft))
    if len(text) > CHARACTERS_MAX:
        return False
    others = [each for each in request.session.get(SESSION_KEY, []) if each[0] != request.path]
    sealed = [request.path, encryption.encrypt(text, purpose=PURPOSE)]
    request.session[SESSION_KEY] = [*others, sealed][-FORMS_MAX:]
    request.is_draft_kept = True  # type: ignore[attr-defined]
    return True


def drafts_of(request: HttpRequest) -> list[Draft]:
    """Return the drafts of who is signed in for the page that is shown."""
    stored = request.session.get(SESSION_KEY)
    if not stored:
        return []
    page, who = request.get_full_path(), person_id(request)
    return [each for each in _opened(stored) if (each.page, each.person_id) == (page, who)]


def forget_draft(request: HttpRequest) -> None:
    """Forget the draft of the form that was sent: it is sent, or shown again with its errors."""
    stored = request.session.get(SESSION_KEY, [])
    left = [each for each in stored if each[0] != request.path]
    if len(left) < len(stored):
        request.session[SESSION_KEY] = left


def _opened(stored: list[Any]) -> list[Draft]:
    drafts = []
    for _, sealed in stored:
        try:
            draft = Draft(**json.loads(encryption.decrypt(sealed, purpose=PURPOSE)))
        except encryption.DecryptionError:
            continue
        if time.time() - draft.kept_at < KEPT.total_seconds():
            drafts.append(draft)
    return drafts


def _forget_others(sender: object, request: HttpRequest, user: Any, **_: Any) -> None:
    """Forget what somebody else had typed before this person signed in."""
    stored = request.session.get(SESSION_KEY, [])
    paths = {each.path for each in _opened(stored) if each.person_id == str(user.pk)}
    if stored:
        request.session[SESSION_KEY] = [each for each in stored if each[0] in paths]


user_logged_in.connect(_forget_others, dispatch_uid="control.drafts")
