"""The pages of a sign-in with an organization's identity provider, and the URLs of this package."""

import time
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from allauth.core import ratelimit
from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from control.accounts.models import EMAIL_MAX
from control.errors import Conflict, InvalidValue, ServiceError
from control.mail.services import absolute
from control.sso import addresses, oidc, provisioning, saml, selectors
from control.sso import scim_views as scim
from control.sso.adapter import CAME_BY_SSO
from control.sso.models import Protocol, SsoConnection
from control.sso.provisioning import IdentityAssertion

PENDING = "sso"
"""Session key of the pending request to a provider."""
PENDING_SECONDS = 600


class SsoLoginForm(forms.Form):
    """Form for the email address whose domain determines the provider."""

    email = forms.EmailField(
        label=_("Work email"),
        max_length=EMAIL_MAX,
        widget=forms.EmailInput(attrs={"autocomplete": "email", "placeholder": "you@company.com"}),
    )


@never_cache
@require_http_methods(["GET", "POST"])
def begin(request: HttpRequest) -> HttpResponse:
    """Ask for an address, and redirect to the provider of its domain. The rate is limited: each
    sign-in returns once and then makes us query the provider for seconds."""
    refused: HttpResponse | None = ratelimit.consume_or_429(request, action="sso")
    if refused is not None:
        return refused
    form = SsoLoginForm(request.POST or None)
    if not form.is_valid():
        return render(request, "sso/begin.html", {"form": form, "next": _next(request)})
    email = form.cleaned_data["email"]
    connection = selectors.connection_for(email)
    if connection is None:
        form.add_error("email", f"Nobody signs in with SSO at {selectors.domain_of(email)}.")
        return render(request, "sso/begin.html", {"form": form, "next": _next(request)})
    url, pending = _begin(connection, email)
    request.session[PENDING] = {
        **pending,
        "organization_id": connection.organization_id,
        "email": email,
        "next": _next(request),
        "at": int(time.time()),
    }
    # A page instead of a redirect: the CSP allows no form to lead to other hosts.
    return render(request, "sso/forward.html", {"url": url})


@never_cache
@require_GET
def callback(request: HttpRequest, organization_id: str) -> HttpResponse:
    """Handle the response of an OpenID provider."""
    connection = selectors.connection_by_id(organization_id)
    return _finish(request, connection, Protocol.OIDC)


@never_cache
@csrf_exempt
@require_POST
def acs(request: HttpRequest, organization_id: str) -> HttpResponse:
    """Handle the response of a SAML provider. Browsers send no session cookie with a form of the
    provider's page, so our page posts it again. The request id in the session makes it safe."""
    connection = selectors.connection_by_id(organization_id)
    if "again" not in request.POST and PENDING not in request.session:
        return render(request, "sso/again.html", {"answer": request.POST.get("SAMLResponse", "")})
    return _finish(request, connection, Protocol.SAML)


def _begin(connection: SsoConnection, email: str) -> tuple[str, dict[str, str]]:
    if connection.protocol == Protocol.SAML:
        url, request_id = saml.authorization_url(connection)
        return url, {"request_id": request_id}
    url, pending = oidc.authorization_url(connection, _callback_url(connection), hint=email)
    return url, pending.as_dict()


def _finish(request: HttpRequest, connection: SsoConnection, protocol: Protocol) -> HttpResponse:
    pending: dict[str, Any] = request.session.pop(PENDING, None) or {}
    try:
        _check_pending(pending, connection, protocol)
        assertion = _verified(request, connection, pending)
        user = provisioning.sign_in(connection=connection, vouched=assertion)
        addresses.follow_sign_in(
            organization=connection.organization, user=user, email=assertion.email
        )
    except ServiceError as reason:
        if pending.get("organization_id") == connection.organization_id:
            provisioning.deny(
                organization=connection.organization, who=pending["email"], reason=reason
            )
        return render(
            request, "sso/refused.html", {"reason": provisioning.reason_text(reason)}, status=403
        )
    setattr(request, CAME_BY_SSO, connection.organization_id)
    record_authentication(
        request, user, "sso", organization=connection.organization_id,
        reauthenticated=not get_adapter().get_reauthentication_methods(user),
    )  # fmt: skip
    return perform_login(request, Login(user=user, redirect_url=pending["next"] or None))


def _check_pending(pending: dict[str, Any], connection: SsoConnection, protocol: Protocol) -> None:
    is_ours = (
        pending.get("organization_id") == connection.organization_id
        and connection.protocol == protocol
        and time.time() - pending.get("at", 0) < PENDING_SECONDS
    )
    if not is_ours:
        raise Conflict("This sign-in was not started here, or it took too long. Start again.")


def _verified(
    request: HttpRequest, connection: SsoConnection, pending: dict[str, Any]
) -> IdentityAssertion:
    if connection.protocol == Protocol.SAML:
        response = request.POST.get("SAMLResponse", "")
        return saml.verify_response(connection, response, request_id=pending["request_id"])
    if "code" not in request.GET:
        error = request.GET.get("error", "no code")[:100]
        raise InvalidValue(f"The provider refused the sign-in: {error}.")
    asked = oidc.AuthorizationRequest(*(pending[name] for name in ("state", "nonce", "verifier")))
    return oidc.verify_response(
        connection,
        _callback_url(connection),
        asked,
        code=request.GET["code"],
        state=request.GET.get("state", ""),
        iss=request.GET.get("iss", ""),
    )


def _callback_url(connection: SsoConnection) -> str:
    return absolute(f"/sso/{connection.organization_id}/callback")


def _next(request: HttpRequest) -> str:
    """Return the path to continue on, empty unless it is on this host."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    return wanted if url_has_allowed_host_and_scheme(wanted, allowed_hosts=None) else ""


urlpatterns = [
    path("sso/", begin, name="sso_begin"),
    path("sso/<str:organization_id>/callback", callback, name="sso_callback"),
    path("sso/<str:organization_id>/acs", acs, name="sso_acs"),
    path("scim/v2/ServiceProviderConfig", scim.provider_config),
    path("scim/v2/ResourceTypes", scim.resource_types),
    path("scim/v2/ResourceTypes/<str:name>", scim.resource_type),
    path("scim/v2/Schemas", scim.schemas),
    path("scim/v2/Schemas/<str:name>", scim.schema),
    path("scim/v2/Users", scim.users),
    path("scim/v2/Users/<str:user_id>", scim.user),
    path("scim/v2/Groups", scim.groups),
    path("scim/v2/Groups/<str:group_id>", scim.group),
    path("scim/v2/<path:rest>", scim.nothing),
]
