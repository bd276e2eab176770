"""API keys: list, create, change, rotate and revoke."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from billing.alerts.consequences import zero_limit_words
from billing.reading import selectors as reading
from billing.reading.filters import UsageFilters
from control.accounts.models import NAME_MAX
from control.api_keys import selectors, services
from control.api_keys.models import FORM_TOKEN_MAX, ApiKey, ApiKeyKind, Scope
from control.api_keys.services import require_key_access
from control.db.models import CredentialState
from control.errors import NotPermitted, ObjectNotFound
from control.forms import VersionedForm, clean_dollars, is_confirmed
from control.organizations.models import Project
from control.permissions import Permission
from web.console import one_time_secrets
from web.console.base import PageContext, console_page
from web.console.binding_limit import page_binding_limit
from web.console.code_samples import CodeSamples
from web.console.forms import apply_or_form_error, save_edit, status_of

LIFETIMES = {
    "": _("Never"),
    "30": _("In 30 days"),
    "90": _("In 90 days"),
    "365": _("In a year"),
}
RENEWALS = [*((days, label) for days, label in LIFETIMES.items() if days), ("never", _("Never"))]
OVERLAPS = {
    "24": _("In 24 hours"),
    "1": _("In an hour"),
    "168": _("In 7 days"),
    "720": _("In 30 days"),
    "0": _("Now: it is refused within a second"),
}
"""When a replaced secret ends, by hours from now."""
SCOPE_LABELS: dict[str, Promise] = {
    Scope.INFERENCE: _("Call models"),
    Scope.MANAGE: _("Everything that an admin may do with the management API"),
    Permission.ORGANIZATION_READ: _("See the organization, its projects, members and keys"),
    Permission.PROJECTS_WRITE: _("Create, change and archive projects"),
    Permission.MEMBERS_WRITE: _("Invite, change and remove members"),
    Permission.WEBHOOKS_WRITE: _("Set up webhooks"),
    Permission.DATA_RETENTION_WRITE: _("Choose which responses are stored"),
    Permission.AUDIT_READ: _("Read the audit log"),
    Permission.API_KEYS_WRITE: _("Create API keys and change their own"),
    Permission.API_KEYS_GRANT: _("Change other members' API keys"),
    Permission.BILLING_READ: _("See costs, balance and invoices"),
    Permission.BILLING_WRITE: _("Make payments and change billing details"),
    Permission.LIMITS_WRITE: _("Set limits and alerts"),
}


class ApiKeyPermissionsForm(forms.Form):
    """The settings of a new or existing key."""

    name = forms.CharField(max_length=NAME_MAX, label=_("Name"))
    scopes = forms.MultipleChoiceField(
        label=_("Permissions"),
        choices=list(SCOPE_LABELS.items()),
        initial=[Scope.INFERENCE],
        widget=forms.CheckboxSelectMultiple,
    )
    allowed_models = forms.CharField(
        label=_("Allowed models, one per line"),
        required=False,
        max_length=20_000,
        help_text=_("Model names as used in requests. Leave empty to allow every model."),
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "placeholder": _("All")}),
    )
    allowed_networks = forms.CharField(
        label=_("Allowed networks, one per line"),
        required=False,
        max_length=10_000,
        help_text=_(
            "In CIDR notation, such as 203.0.113.0/24 or 203.0.113.7/32."
            " Leave empty to allow calls from anywhere."
        ),
        widget=forms.Textarea(
            attrs={"rows": 2, "spellcheck": "false", "placeholder": _("Anywhere")}
        ),
    )

    def __init__(self, *args: Any, may_manage: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not may_manage:
            del self.fields["scopes"]

    def rights(self) -> dict[str, Any]:
        """Return the settings as services take them, without those the member may not set."""
        data = self.cleaned_data
        settings = {"name": data["name"], **{name: data[name].split() or None for name in LISTS}}
        if "scopes" in data:
            settings["scopes"] = data["scopes"]
        return settings


LISTS = ("allowed_models", "allowed_networks")


class ApiKeyCreateForm(ApiKeyPermissionsForm):
    """A new API key. `token` identifies the form: submitted twice, it creates one key."""

    project = forms.ChoiceField(
        label=_("Project"), help_text=_("The project that usage is counted in.")
    )
    lifetime = forms.ChoiceField(
        label=_("Expires"), choices=list(LIFETIMES.items()), required=False
    )
    limit = forms.CharField(
        label=_("Spending limit per month, in dollars"),
        required=False,
        help_text=_(
            "Optional. At the limit, the key is refused until the next month begins (UTC)."
        ),
        widget=forms.TextInput(attrs={"inputmode": "decimal", "placeholder": _("No limit")}),
    )
    token = forms.CharField(required=False, max_length=FORM_TOKEN_MAX, widget=forms.HiddenInput)
    field_order = (
        "name",
        "project",
        "scopes",
        "lifetime",
        "limit",
        "allowed_models",
        "allowed_networks",
    )

    def __init__(self, *args: Any, projects: Sequence[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(project.id, project.name) for project in projects]
        self.fields["project"] = forms.ChoiceField(
            label=_("Project"),
            choices=choices,
            help_text=_("The project that usage is counted in."),
        )
        self.fields["name"].widget.attrs |= {
            "placeholder": _("My application"),
            "autofocus": True,
        }
        self.fields["token"].initial = secrets.token_urlsafe(24)
        self.order_fields(self.field_order)

    def clean_limit(self) -> int | None:
        """Return the limit in nano-dollars. Raises ValidationError."""
        text = self.cleaned_data["limit"]
        return clean_dollars(text) if text else None

    def expires_at(self, now: datetime) -> datetime | None:
        """Return when the key expires; None for never."""
        days = self.cleaned_data["lifetime"]
        return now + timedelta(days=int(days)) if days else None


class ApiKeyUpdateForm(ApiKeyPermissionsForm, VersionedForm):
    """The settings of an existing key."""

    expires_on = forms.DateField(
        label=_("Expires"),
        required=False,
        help_text=_("At the start of this day (UTC). Leave empty for a key that never expires."),
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )
    field_order = ("name", "scopes", "expires_on", "allowed_models", "allowed_networks")

    def __init__(self, *args: Any, key: ApiKey, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, initial=_initial(key))
        self.key = key
        self.order_fields(self.field_order)

    def rights(self) -> dict[str, Any]:
        """Return the settings; an unchanged day keeps the exact time of expiry."""
        return {**super().rights(), "expires_at": self._expires_at()}

    def _expires_at(self) -> datetime | None:
        day: date | None = self.cleaned_data["expires_on"]
        if self.key.expires_at is not None and day == _day(self.key.expires_at):
            return self.key.expires_at
        return None if day is None else datetime.combine(day, time(), UTC)


class ApiKeyRotateForm(forms.Form):
    """When the replaced secret ends. `last_four` identifies it: submitted twice, the form replaces
    it once. An expired key asks for its new expiry instead: its secrets are refused already."""

    overlap = forms.ChoiceField(label=_("Current secret ends"), choices=list(OVERLAPS.items()))
    lifetime = forms.ChoiceField(label=_("New expiry"), choices=RENEWALS)
    last_four = forms.CharField(max_length=4, widget=forms.HiddenInput)

    def __init__(self, data: QueryDict | None = None, *, key: ApiKey) -> None:
        super().__init__(data, initial={"last_four": key.last_four})
        is_expired = key.state(timezone.now()) == CredentialState.EXPIRED
        del self.fields["overlap" if is_expired else "lifetime"]

    def times(self, now: datetime) -> dict[str, datetime | None]:
        """Return when the replaced secret ends, or the new expiry, as the service takes them."""
        if "overlap" in self.fields:
            hours = int(self.cleaned_data["overlap"])
            return {"previous_secret_ends_at": now + timedelta(hours=hours)}
        days = self.cleaned_data["lifetime"]
        return {"expires_at": None if days == "never" else now + timedelta(days=int(days))}


class ApiKeyRevokeForm(forms.Form):
    """The key's name, typed to confirm."""

    confirmation = forms.CharField(label="", widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, key: ApiKey, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key = key
        label = gettext("Type “%(name)s” to confirm") % {"name": key.name}
        self.fields["confirmation"].label = label

    def clean_confirmation(self) -> str:
        """Return the name. Raises ValidationError for any other."""
        typed = str(self.cleaned_data["confirmation"])
        if typed.strip() != self.key.name.strip():
            words = gettext("That is not “%(name)s”. The key was not revoked.")
            raise forms.ValidationError(words % {"name": self.key.name})
        return typed


def _initial(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "scopes": key.scopes,
        "allowed_models": "\n".join(key.allowed_models or ()),
        "allowed_networks": "\n".join(key.allowed_networks or ()),
        "expires_on": None if key.expires_at is None else _day(key.expires_at),
    }


def _day(at: datetime) -> date:
    return at.astimezone(UTC).date()


USAGE_DAYS = 30


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """A key, its state and the URL of its page."""

    key: ApiKey
    state: CredentialState
    url: str
    may_change: bool


@console_page("keys")
def keys(page: PageContext) -> HttpResponse:
    """List the keys that are not revoked, expired ones too."""
    found, now = selectors.keys(page.organization, project=page.project), timezone.now()
    context = {
        "keys": [
            ApiKeyRow(key, key.state(now), page.url("key", key.id), may_change(page, key))
            for key in found
        ],
        "may_manage": page.may(Permission.API_KEYS_WRITE),
        "first_call": CodeSamples(page),
    }
    return page.render("console/keys.html", context)


@never_cache
@console_page("keys")
def key_new(page: PageContext) -> HttpResponse:
    """Show the form; a POST creates a key and redirects to its secret."""
    require_key_maker(page)
    form = ApiKeyCreateForm(
        page.request.POST or None,
        projects=page.projects,
        initial={"project": page.project.id if page.project else ""},
        may_manage=page.may(Permission.API_KEYS_GRANT),
    )
    made: list[ApiKey] = []
    if (
        not form.is_valid()
        or not may_create(page, form)
        or not apply_or_form_error(form, lambda: made.append(create(page, form)))
    ):
        return page.render("console/key_new.html", {"form": form})
    return redirect(page.url("key_secret", made[0].id))


def may_create(page: PageContext, form: ApiKeyCreateForm) -> bool:
    """Return whether the new key's limit lets it work, or the member confirmed it."""
    data = form.cleaned_data
    return data["limit"] != 0 or is_confirmed(form, 0, zero_limit_words(data["name"]))


@sensitive_variables("secret")
def create(page: PageContext, form: ApiKeyCreateForm) -> ApiKey:
    """Create the form's key once, and store its secret for the next page; return the key."""
    try:
        key, secret = services.create_api_key(
            actor=page.actor,
            project=next(each for each in page.projects if each.id == form.cleaned_data["project"]),
            expires_at=form.expires_at(timezone.now()),
            spend_limit_nanos=form.cleaned_data["limit"],
            form_token=form.cleaned_data["token"] or None,
            **form.rights(),
        )
    except services.DuplicateSubmission as twice:
        return twice.key
    one_time_secrets.store_once(page.request, key.id, secret)
    return key


@never_cache
@sensitive_variables("secret")
@console_page("keys")
def key_secret(page: PageContext, key_id: str) -> HttpResponse:
    """Show the new secret of a key once."""
    found = key_of(page, key_id)
    secret = one_time_secrets.pop_once(page.request, found.id)
    if secret is None:
        words = gettext("The secret of %(name)s was already shown. If you lost it, rotate the key.")
        messages.warning(page.request, words % {"name": found.name})
        return redirect(page.url("key", key_id))
    old = selectors.previous_secrets(found, timezone.now())
    context = {"key": found, "secret": secret, "old": old, "first_call": CodeSamples(page)}
    return page.render("console/key_minted.html", context)


@console_page("keys")
def key(page: PageContext, key_id: str) -> HttpResponse:
    """Show a key: its settings, permissions and secrets, and the form that revokes it."""
    return render_key(page, key_of(page, key_id))


@require_POST
@console_page("keys")
def key_edit(page: PageContext, key_id: str) -> HttpResponse:
    """Change a key's permissions, networks and expiry."""
    found = key_of(page, key_id)
    form = edit_form(page, found, page.request.POST)
    if save_edit(
        form,
        page.organization.id,
        lambda: edit_form(page, key_of(page, key_id)),
        lambda: services.update_api_key(actor=page.actor, key=found, **form.rights()),
    ):
        words = gettext("Saved. Every gateway applies the change within a second.")
        if key_of(page, key_id).state(timezone.now()) == CredentialState.EXPIRED:
            words = gettext("Saved. The key stays expired until it has a new expiry.")
        messages.success(page.request, words)
        return redirect(page.url("key", key_id))
    return render_key(page, found, edit=form)


@require_POST
@sensitive_variables("secret")
@console_page("keys")
def key_rotate(page: PageContext, key_id: str) -> HttpResponse:
    """Create a new secret; the one in use remains valid until the chosen time. An expired key gets
    a new expiry."""
    found = key_of(page, key_id)
    form = ApiKeyRotateForm(page.request.POST, key=found)
    made: list[str] = []

    def rotate() -> None:
        _, secret = services.rotate_key(
            actor=page.actor,
            key=found,
            last_four=form.cleaned_data["last_four"],
            **form.times(timezone.now()),
        )
        made.append(secret)

    if not form.is_valid() or not apply_or_form_error(form, rotate):
        return render_key(page, found, rotate=form)
    one_time_secrets.store_once(page.request, found.id, made[0])
    return redirect(page.url("key_secret", key_id))


@require_POST
@console_page("keys", needs_recent_proof=False)
def key_end_old(page: PageContext, key_id: str) -> HttpResponse:
    """Revoke the replaced secrets."""
    found = key_of(page, key_id)
    services.revoke_previous_secrets(actor=page.actor, key=found)
    words = gettext("The old secrets of %(name)s stop working within a second.")
    messages.success(page.request, words % {"name": found.name})
    return redirect(page.url("key", key_id))


@require_POST
@console_page("keys", needs_recent_proof=False)
def key_revoke(page: PageContext, key_id: str) -> HttpResponse:
    """Revoke the key."""
    found = key_of(page, key_id)
    state = found.state(timezone.now())
    form = ApiKeyRevokeForm(page.request.POST, key=found)
    if form.is_valid() and apply_or_form_error(
        form, lambda: services.revoke_key(actor=page.actor, key=found)
    ):
        words = gettext("%(name)s (%(key)s) is revoked. It stops working within a second.")
        if state == CredentialState.EXPIRED:
            words = gettext("%(name)s (%(key)s), which had expired, is revoked for good.")
        messages.success(page.request, words % {"name": found.name, "key": found.masked})
        return redirect(page.url("keys"))
    return render_key(page, found, revoke=form)


def require_key_maker(page: PageContext) -> None:
    """Raise NotPermitted if the member may not create keys."""
    if not page.may(Permission.API_KEYS_WRITE):
        raise NotPermitted(
            gettext("Only owners, admins and developers can create and revoke API keys.")
        )


def key_of(page: PageContext, key_id: str) -> ApiKey:
    """Return a live key that the member may manage. Raises ObjectNotFound, NotPermitted."""
    found = selectors.key(page.organization, key_id)
    is_revoked = found.state(timezone.now()) == CredentialState.REVOKED
    if is_revoked or found.kind == ApiKeyKind.PLAYGROUND:
        raise ObjectNotFound(gettext("There is no such API key."))
    require_key_maker(page)
    return found


def may_change(page: PageContext, key: ApiKey) -> bool:
    """Return whether the member may change, rotate and revoke a key."""
    try:
        require_key_access(page.actor, key)
    except NotPermitted:
        return False
    return True


def edit_form(page: PageContext, key: ApiKey, data: QueryDict | None = None) -> ApiKeyUpdateForm:
    """Return the form with the key's settings."""
    return ApiKeyUpdateForm(data, key=key, may_manage=page.may(Permission.API_KEYS_GRANT))


def render_key(
    page: PageContext,
    key: ApiKey,
    *,
    edit: ApiKeyUpdateForm | None = None,
    rotate: ApiKeyRotateForm | None = None,
    revoke: ApiKeyRevokeForm | None = None,
) -> HttpResponse:
    """Return the page of a key, with the forms as they were submitted."""
    now = timezone.now()
    state = key.state(now)
    context = {
        "key": key,
        "state": state,
        "is_expired": state == CredentialState.EXPIRED,
        "scopes": [str(SCOPE_LABELS[scope]) for scope in key.scopes],
        "is_test": key.prefix.startswith("pen_test_"),
        "old": [] if state == CredentialState.EXPIRED else selectors.previous_secrets(key, now),
        "may_change": may_change(page, key),
        "binding": page_binding_limit(page, key=key),
        "may_limit": page.may(Permission.LIMITS_WRITE),
        "sums": reading.usage_totals(
            page.organization,
            now - timedelta(days=USAGE_DAYS),
            now,
            filters=UsageFilters(key_ids=(key.id,)),
            with_money=page.may_see_money,
        ),
        "usage_url": page.url("usage", key=key.id),
        "edit": edit or edit_form(page, key),
        "rotate": rotate or ApiKeyRotateForm(key=key),
        "revoke": revoke or ApiKeyRevokeForm(key=key),
    }
    return page.render("console/key.html", context, status_of(edit, rotate, revoke))
