"""The light, dark or system theme, kept in a cookie so that the first paint is already right."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

COOKIE = "theme"
CHOICES = ("light", "dark", "system")
YEAR_SECONDS = 365 * 24 * 3600


def theme(request: HttpRequest) -> dict[str, str]:
    """Return the chosen theme, empty to follow the system (a context processor)."""
    chosen = request.COOKIES.get(COOKIE, "")
    return {"theme": chosen if chosen in ("light", "dark") else ""}


@require_POST
def choose_theme(request: HttpRequest) -> HttpResponse:
    """Save the theme and go back; with JavaScript, the page does this without a request."""
    target = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()}):
        target = "/"
    response = redirect(target)
    chosen = request.POST.get("theme", "")
    if chosen in CHOICES:
        response.set_cookie(COOKIE, chosen, max_age=YEAR_SECONDS, samesite="Lax")
    return response
