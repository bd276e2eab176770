"""Webhook endpoints and their deliveries."""

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from control.egress import URL_MAX
from control.errors import Conflict, NotPermitted
from control.forms import VersionedForm
from control.permissions import Permission
from control.webhooks import selectors, services
from control.webhooks.models import DESCRIPTION_MAX, EVENT_TYPES, WebhookEndpoint
from web.console.base import PageContext, console_page
from web.console.forms import apply_or_form_error, save_edit, status_of


class WebhookEndpointForm(forms.Form):
    """An endpoint's URL, description and event types."""

    url = forms.CharField(
        label=_("Endpoint URL"),
        max_length=URL_MAX,
        help_text=_("An https:// URL of yours that is reachable from the internet."),
        widget=forms.TextInput(
            attrs={"inputmode": "url", "placeholder": "https://example.com/hooks"}
        ),
    )
    description = forms.CharField(
        label=_("Description"),
        max_length=DESCRIPTION_MAX,
        required=False,
        help_text=_("Optional."),
    )
    event_types = forms.MultipleChoiceField(
        label=_("Events"),
        choices=list(EVENT_TYPES.items()),
        widget=forms.CheckboxSelectMultiple,
    )


class WebhookEndpointChangeForm(WebhookEndpointForm, VersionedForm):
    """The settings of an existing endpoint."""


class WebhookDeleteForm(forms.Form):
    """The endpoint's host, typed to confirm."""

    confirmation = forms.CharField(widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, endpoint: WebhookEndpoint, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.endpoint = endpoint
        label = gettext("Type “%(name)s” to confirm") % {"name": endpoint.host}
        self.fields["confirmation"].label = label

    def clean_confirmation(self) -> str:
        """Return the host. Raises ValidationError for any other."""
        typed = str(self.cleaned_data["confirmation"])
        if typed.strip() != self.endpoint.host:
            words = gettext("That is not “%(name)s”. The endpoint was not deleted.")
            raise forms.ValidationError(words % {"name": self.endpoint.host})
        return typed


PAGE_SIZE = 50


@console_page("webhooks")
def webhooks(page: PageContext) -> HttpResponse:
    """List the endpoints."""
    require_manager(page)
    rows = [
        {"endpoint": each, "url": page.url("webhook", each.id)}
        for each in selectors.endpoints(page.organization)
    ]
    return page.render("console/webhooks.html", {"rows": rows, "event_types": EVENT_TYPES.items()})


@never_cache
@sensitive_variables("secret")
@console_page("webhooks")
def webhook_new(page: PageContext) -> HttpResponse:
    """Show the form; a POST creates an endpoint and shows its secret."""
    require_manager(page)
    form = WebhookEndpointForm(page.request.POST or None)
    made: list[tuple[WebhookEndpoint, str]] = []
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: made.append(
            services.create_endpoint(
                actor=page.actor, organization=page.organization, **form.cleaned_data
            )
        ),
    ):
        [(endpoint, secret)] = made
        context = {"endpoint": endpoint, "secret": secret, "is_new": True}
        return page.render("console/webhook_secret.html", context, status=201)
    return page.render("console/webhook_new.html", {"form": form})


@console_page("webhooks")
def webhook(page: PageContext, endpoint_id: str) -> HttpResponse:
    """Show an endpoint: its settings, deliveries, secrets, and the form that deletes it."""
    return render_endpoint(page, endpoint_of(page, endpoint_id))


@require_POST
@console_page("webhooks")
def webhook_update(page: PageContext, endpoint_id: str) -> HttpResponse:
    """Change an endpoint's URL, description and event types."""
    found = endpoint_of(page, endpoint_id)
    form = WebhookEndpointChangeForm(page.request.POST)
    if save_edit(
        form,
        page.organization.id,
        lambda: change_form(endpoint_of(page, endpoint_id)),
        lambda: services.update_endpoint(actor=page.actor, endpoint=found, **form.cleaned_data),
    ):
        messages.success(page.request, gettext("The endpoint is changed."))
        return redirect(page.url("webhook", endpoint_id))
    return render_endpoint(page, found, form=form)


@require_POST
@console_page("webhooks")
def webhook_switch(page: PageContext, endpoint_id: str) -> HttpResponse:
    """Enable or disable an endpoint."""
    found = endpoint_of(page, endpoint_id)
    is_enabled = page.request.POST.get("is_enabled") == "1"
    services.update_endpoint(actor=page.actor, endpoint=found, is_enabled=is_enabled)
    if is_enabled:
        words = gettext("The endpoint is enabled.")
    else:
        words = gettext("The endpoint is disabled. Nothing is sent to it.")
    messages.success(page.request, words)
    return redirect(page.url("webhook", endpoint_id))


@never_cache
@sensitive_variables("secret")
@require_POST
@console_page("webhooks")
def webhook_rotate(page: PageContext, endpoint_id: str) -> HttpResponse:
    """Create a new secret and show it once."""
    found = endpoint_of(page, endpoint_id)
    secret = services.rotate_secret(actor=page.actor, endpoint=found, now=timezone.now())
    context = {"endpoint": found, "secret": secret, "is_new": False}
    return page.render("console/webhook_secret.html", context, status=201)


@require_POST
@console_page("webhooks")
def webhook_test(page: PageContext, endpoint_id: str) -> HttpResponse:
    """Send a test event."""
    found = endpoint_of(page, endpoint_id)
    return said(
        page,
        found,
        gettext("A test is on its way. The log shows the result."),
        lambda: services.send_test(actor=page.actor, endpoint=found, now=timezone.now()),
    )


@require_POST
@console_page("webhooks")
def webhook_delete(page: PageContext, endpoint_id: str) -> HttpResponse:
    """Delete an endpoint, confirmed by its host."""
    found = endpoint_of(page, endpoint_id)
    form = WebhookDeleteForm(page.request.POST, endpoint=found)
    if form.is_valid():
        services.delete_endpoint(actor=page.actor, endpoint=found, now=timezone.now())
        words = gettext("The endpoint at %(host)s is deleted.") % {"host": found.host}
        messages.success(page.request, words)
        return redirect(page.url("webhooks"))
    return render_endpoint(page, found, delete=form)


@console_page("webhooks")
def webhook_delivery(page: PageContext, endpoint_id: str, delivery_id: str) -> HttpResponse:
    """Show a delivery: its body and every attempt."""
    found = endpoint_of(page, endpoint_id)
    delivery = selectors.delivery(found, delivery_id)
    context = {
        "endpoint": found,
        "delivery": delivery,
        "attempts": selectors.attempts(delivery),
        "body": json.dumps(json.loads(delivery.event.body), indent=2, ensure_ascii=False),
    }
    return page.render("console/webhook_delivery.html", context)


@require_POST
@console_page("webhooks")
def webhook_resend(page: PageContext, endpoint_id: str, delivery_id: str) -> HttpResponse:
    """Send a delivery again."""
    found = endpoint_of(page, endpoint_id)
    delivery = selectors.delivery(found, delivery_id)
    return said(
        page,
        found,
        gettext("The message is on its way again. The log shows the result."),
        lambda: services.resend(actor=page.actor, delivery=delivery, now=timezone.now()),
    )


def require_manager(page: PageContext) -> None:
    """Raise NotPermitted if the member may not manage webhooks."""
    if not page.may(Permission.WEBHOOKS_WRITE):
        raise NotPermitted(gettext("Only owners and admins can manage webhooks."))


def endpoint_of(page: PageContext, endpoint_id: str) -> WebhookEndpoint:
    """Return an endpoint that the member may manage. Raises ObjectNotFound, NotPermitted."""
    require_manager(page)
    return selectors.endpoint(page.organization, endpoint_id)


def said(
    page: PageContext, endpoint: WebhookEndpoint, words: str, act: Callable[[], object]
) -> HttpResponse:
    """Call `act`, show a message for the result, and go back to the endpoint."""
    try:
        act()
    except Conflict as error:
        messages.error(page.request, error.message)
    else:
        messages.success(page.request, words)
    return redirect(page.url("webhook", endpoint.id))


def change_form(endpoint: WebhookEndpoint) -> WebhookEndpointChangeForm:
    """Return the form with an endpoint's present settings."""
    fields = ("url", "description", "event_types")
    return WebhookEndpointChangeForm(initial={name: getattr(endpoint, name) for name in fields})


def render_endpoint(
    page: PageContext,
    endpoint: WebhookEndpoint,
    *,
    form: WebhookEndpointChangeForm | None = None,
    delete: WebhookDeleteForm | None = None,
) -> HttpResponse:
    """Return the page of an endpoint, with the forms as they were submitted."""
    log = Paginator(selectors.deliveries(endpoint), PAGE_SIZE)
    shown = log.get_page(page.request.GET.get("log"))
    context = {
        "endpoint": endpoint,
        "form": form or change_form(endpoint),
        "delete": delete or WebhookDeleteForm(endpoint=endpoint),
        "log": shown,
        "rows": [
            {"delivery": each, "url": page.url("webhook_delivery", endpoint.id, each.id)}
            for each in shown
        ],
        "secret_count": len(selectors.valid_secrets(endpoint, timezone.now())),
    }
    return page.render("console/webhook.html", context, status_of(form, delete))
