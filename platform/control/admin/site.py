"""Access to the admin: allauth's throttled sign-in and a second factor, without a login form of its
own."""

from functools import cache, wraps
from typing import Any
from urllib.parse import urlencode

from allauth.account.authentication import get_authentication_records
from allauth.account.internal.flows.login import record_authentication
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_added
from allauth.mfa.utils import is_mfa_enabled
from django.apps import apps
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import (
    BadRequest,
    ObjectDoesNotExist,
    PermissionDenied,
    ValidationError,
)
from django.dispatch import Signal
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext
from unfold.sites import UnfoldAdminSite

from control.permissions import Permission
from control.reauthentication import ask, is_recent

page_shown = Signal()
"""Sent with `request` before a page is returned that was asked for with GET and not refused."""
SECOND_FACTOR = "mfa"
"""The method in allauth's authentication records of a session."""
PROVEN_APPS = ("api_keys", "accounts", "organizations", "operators")
"""Apps whose forms need a recent sign-in, besides those of billing and pricing."""
PROVING = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
"""Recovery codes are created together with one of these."""


class OperatorSite(UnfoldAdminSite):
    """The admin, open to operators who used a second factor in this session."""

    def has_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may open the admin at all."""
        return super().has_permission(request) and has_second_factor(request)

    def login(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Redirect to the sign-in or second-factor page that is still needed.

        Raises PermissionDenied for a user who is not an operator.
        """
        if self.has_permission(request):
            return redirect(_next(request))
        if not request.user.is_authenticated:
            return _to("account_login", request)
        if not super().has_permission(request):
            raise PermissionDenied(gettext("Only operators of the platform may do this."))
        if is_mfa_enabled(request.user):
            return _to("mfa_reauthenticate", request)
        messages.info(request, gettext("Operators need a second factor. Set one up to continue."))
        return _to("mfa_activate_totp", request)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """Return the view behind checks of its input and of how recent the sign-in is."""
        guarded = super().admin_view(view, cacheable)

        @wraps(guarded)
        def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            _require_storable(request)
            _require_ids(request, [unquote(kwargs["object_id"])] if "object_id" in kwargs else [])
            is_stale = self.has_permission(request) and not is_recent(request)
            if is_stale and _needs_recent_proof(request):
                return ask(request, back=request.get_full_path())
            try:
                response = guarded(request, *args, **kwargs)
            except ObjectDoesNotExist as error:
                raise Http404(str(error)) from error
            if request.method == "GET" and response.status_code == 200:
                page_shown.send(sender=type(self), request=request)
            return response

        return respond

    def password_change(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Redirect to the account page, which asks for the old password and sends an email."""
        return redirect("account_change_password")


def _needs_recent_proof(request: HttpRequest) -> bool:
    """Return whether a form moves money, sets prices or terms, or concerns keys or people."""
    match request.resolver_match and request.resolver_match.route.split("/"):
        case ["admin", app_label, _, *_] if request.method == "POST":
            config = apps.app_configs.get(app_label)
            permission = getattr(config, "change_permission", None)
            return permission == Permission.FINANCE_WRITE or app_label in PROVEN_APPS
    return False


def _require_storable(request: HttpRequest) -> None:
    """Raise BadRequest for a form with NUL characters: not all admin fields check for them."""
    if any("\0" in value for _, values in request.POST.lists() for value in values):
        raise BadRequest(gettext("Forms may not contain NUL characters."))


def _require_ids(request: HttpRequest, ids: list[str]) -> None:
    """Raise Http404 if the URL or the form of a list holds an invalid row id."""
    match request.resolver_match and request.resolver_match.route.split("/"):
        case ["admin", app_label, model_name, *_] if (app_label, model_name) in apps_with_rows():
            column = apps.get_model(app_label, model_name)._meta.pk
            for each in [*ids, *request.POST.getlist("_selected_action")]:
                try:
                    column.to_python(each)
                except ValidationError as error:
                    raise Http404(gettext("There is no such row.")) from error


@cache
def apps_with_rows() -> frozenset[tuple[str, str]]:
    """Return the app label and model name of every model, as URLs name them."""
    return frozenset(
        (each._meta.app_label, str(each._meta.model_name)) for each in apps.get_models()
    )


def has_second_factor(request: HttpRequest) -> bool:
    """Return whether the user proved a second factor in this session."""
    records = get_authentication_records(request, request.user)
    return any(record["method"] == SECOND_FACTOR for record in records)


def on_first_mfa(
    sender: object, request: HttpRequest, user: Any, authenticator: Authenticator, **_: Any
) -> None:
    """Count a person's first second factor as proved in this session: setting it up took a code.

    A further factor proves nothing, since adding it takes only a password.
    """
    is_new = authenticator.type in PROVING
    if is_new and Authenticator.objects.filter(user=user, type__in=PROVING).count() == 1:
        record_authentication(request, user, SECOND_FACTOR)


authenticator_added.connect(on_first_mfa, dispatch_uid="control.admin.site")


def _to(page: str, request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(f"{reverse(page)}?{urlencode({'next': _next(request)})}")


def _next(request: HttpRequest) -> str:
    """Return the admin URL in `next`, or the admin's first page."""
    url = request.GET.get("next", "")
    home = reverse("admin:index")
    is_local = url_has_allowed_host_and_scheme(url, allowed_hosts=None)
    return url if is_local and url.startswith(home) else home
