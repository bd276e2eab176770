"""The page that a form is on, and whose it is: a hidden field of every form with a CSRF token, so
that what is sent after the session ended can go back to that page and to nobody else.

The field is encrypted, so that only a page of ours can name either; and anew for each page, so that
its compressed length reveals nothing.
"""

import json
from dataclasses import dataclass
from typing import Any

from django import template
from django.http import HttpRequest
from django.template.defaulttags import CsrfTokenNode
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from control import encryption

FIELD = "form_origin"
PURPOSE = "the origin of a form"
register = template.Library()


@dataclass(frozen=True, slots=True)
class FormOrigin:
    """The page of a form, and the id of the person for whom it was rendered, empty for nobody."""

    page: str
    person_id: str


class OriginNode(CsrfTokenNode):
    """The CSRF token and the form's origin."""

    def render(self, context: Any) -> SafeString:
        """Return both hidden fields."""
        token = mark_safe(super().render(context))  # noqa: S308 - Django's own fields
        request = context.get("request")
        if not token or request is None:
            return token
        origin = _sealed_origin(request)
        return token + format_html('<input type="hidden" name="{}" value="{}">', FIELD, origin)


@register.tag
def csrf_token(parser: object, tag: object) -> OriginNode:
    """Replace Django's tag of this name in all templates."""
    return OriginNode()


def person_id(request: HttpRequest) -> str:
    """Return the id of who is signed in; empty for nobody."""
    user = getattr(request, "user", None)
    return str(user.pk) if user is not None and user.is_authenticated else ""


def origin_of(request: HttpRequest) -> FormOrigin | None:
    """Return the origin of the form that was sent; None for a form of nobody's page."""
    try:
        text = encryption.decrypt(request.POST.get(FIELD, ""), purpose=PURPOSE)
    except encryption.DecryptionError:
        return None
    return FormOrigin(**json.loads(text))


def page_of_form(request: HttpRequest) -> str:
    """Return the page of the form that was sent; for a form that does not say, the section of the
    console or the site that it belongs to. It is never an address that takes POST only."""
    if origin := origin_of(request):
        return origin.page
    match = request.resolver_match
    home = getattr(match.func, "home", None) if match else None
    if match and home:
        return reverse(home, args=[match.kwargs["organization_id"]])
    admin = reverse("admin:index")
    return admin if request.path.startswith(admin) else "/"


def _sealed_origin(request: Any) -> str:
    if not hasattr(request, "_form_origin"):
        # A refused form is shown again at the address that it was sent to.
        page = request.get_full_path() if request.method != "POST" else page_of_form(request)
        text = json.dumps({"page": page, "person_id": person_id(request)})
        request._form_origin = encryption.encrypt(text, purpose=PURPOSE)
    return str(request._form_origin)
