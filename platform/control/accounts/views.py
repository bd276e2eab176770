"""Our own sign-in pages: the rate-limited form, the emailed link that trusts a device, and the list
of sessions."""

import time
from typing import Any, cast
from urllib.parse import urlencode

from allauth.account.views import LoginView
from allauth.core import ratelimit
from allauth.usersessions.internal.flows.sessions import end_sessions
from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.response import SimpleTemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from control.accounts.login_attempts import TOO_MANY_ATTEMPTS, ConcurrencyLimitExceeded, login_slot
from control.accounts.models import User, user_by_email
from control.accounts.notifications import mail_device_link
from control.accounts.sessions import end_other_sessions, open_sessions
from control.accounts.signals import send_account_event
from control.accounts.trusted_devices import email_of_link, is_trusted_device, trust_device
from control.error_pages import server_busy

SENT_ON = 302
TOO_MANY = 429


class RateLimitedLoginView(LoginView):
    """allauth's sign-in with limited concurrency, and 429 with `Retry-After` after too many
    attempts."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign in, in a login slot."""
        try:
            with login_slot(is_known=is_trusted_device(request, request.POST.get("login", ""))):
                began = time.monotonic()
                response: HttpResponse = super().post(request, *args, **kwargs)
                # Rendering is most of the work, so it happens while the slot is held.
                if isinstance(response, SimpleTemplateResponse):
                    response.render()
                if response.status_code != SENT_ON:
                    # A flood of failed sign-ins uses the processor only half of the time.
                    time.sleep(time.monotonic() - began)
                return response
        except ConcurrencyLimitExceeded:
            return server_busy(request)

    def form_invalid(self, form: forms.Form) -> HttpResponse:
        """Show the form again, with the time until the next attempt."""
        errors = form.errors.as_data().get("__all__", [])
        waits = [
            error.params["seconds"]
            for error in errors
            if error.code == TOO_MANY_ATTEMPTS and error.params
        ]
        if not waits:
            return super().form_invalid(form)
        context = self.get_context_data(form=form, tried_email=form.data.get("login", ""))
        response = self.render_to_response(context, status=TOO_MANY)
        response.headers["Retry-After"] = str(waits[0])
        return response


sign_in = RateLimitedLoginView.as_view()


class DeviceLinkForm(forms.Form):
    """The account that a device is to be trusted for."""

    email = forms.EmailField(max_length=254)


@require_POST
@never_cache
def device_link(request: HttpRequest) -> HttpResponse:
    """Email the link that trusts a device, or the message that there is no account; the page is
    the same in both cases."""
    form = DeviceLinkForm(request.POST)
    email = form.cleaned_data["email"].lower() if form.is_valid() else ""
    refused = ratelimit.consume_or_429(request, action="device_link", key=email)
    if refused is not None:
        return refused
    if email:
        user = user_by_email(email)
        mail_device_link(request, email, is_account=user is not None and user.is_active)
    return render(request, "account/device_link_sent.html")


@require_GET
@never_cache
def trust_device_view(request: HttpRequest, token: str) -> HttpResponse:
    """Trust this device for the account of the link, without a sign-in."""
    email = email_of_link(token)
    if email is None:
        messages.error(request, gettext("This link has expired. Request another one below."))
        return redirect("account_login")
    messages.success(request, gettext("You can try again on this device now."))
    response = redirect(f"{reverse('account_login')}?{urlencode({'email': email})}")
    trust_device(request, response, email)
    return response


@login_required
@require_http_methods(["GET", "POST"])
def sessions(request: HttpRequest) -> HttpResponse:
    """List the user's own sessions, or end all but this one."""
    signed_in = cast(User, request.user)
    if request.method == "POST":
        end_other_sessions(signed_in, request)
        messages.success(request, gettext("You are signed out everywhere else."))
        return redirect("usersessions_list")
    found = open_sessions(signed_in, timezone.now())
    return render(request, "usersessions/usersession_list.html", {"sessions": found})


@login_required
@require_POST
def end_session(request: HttpRequest, session_id: int) -> HttpResponse:
    """End one of the user's own sessions; its next request is anonymous."""
    signed_in = cast(User, request.user)
    session = get_object_or_404(UserSession, user_id=signed_in.pk, id=session_id)
    with transaction.atomic():
        send_account_event(signed_in, "user.session_revoked")
        end_sessions(request, [session])
    messages.success(request, gettext("The session is ended."))
    return redirect("usersessions_list")
