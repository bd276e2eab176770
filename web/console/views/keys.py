"""API keys: mint, change, rotate, revoke. A secret is shown once, on the page after the form that
made it: a reload of either makes nothing and shows nothing."""

from dataclasses import dataclass
from datetime import timedelta

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from billing.reading import selectors as reading
from billing.reading.filters import UsageFilters
from control.api_keys import selectors, services
from control.api_keys.models import ApiKey, ApiKeyKind
from control.api_keys.services import require_key_access
from control.errors import NotPermitted, ObjectNotFound
from control.permissions import Permission
from web.console import shown_once
from web.console.first_call import FirstCall
from web.console.key_forms import SCOPES, EditForm, KeyForm, RevokeForm, RotateForm
from web.console.page import ConsolePage, console_page
from web.console.refusals import carried_out

USAGE_DAYS = 30


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key and the address of its page."""

    key: ApiKey
    url: str
    may_change: bool


@console_page("keys")
def keys(page: ConsolePage) -> HttpResponse:
    """The keys that work."""
    found = selectors.keys(page.organization, project=page.project)
    context = {
        "keys": [KeyRow(key, page.url("key", key.id), may_change(page, key)) for key in found],
        "may_manage": page.may(Permission.API_KEYS_WRITE),
        "first_call": FirstCall(page),
    }
    return page.render("console/keys.html", context)


@never_cache
@console_page("keys")
def key_new(page: ConsolePage) -> HttpResponse:
    """The form, and after it the page with the secret."""
    require_key_maker(page)
    form = KeyForm(
        page.request.POST or None,
        projects=page.projects,
        initial={"project": page.project.id if page.project else ""},
        may_manage=page.may(Permission.API_KEYS_GRANT),
    )
    made: list[ApiKey] = []
    if not form.is_valid() or not carried_out(form, lambda: made.append(mint(page, form))):
        return page.render("console/key_new.html", {"form": form})
    return redirect(page.url("key_secret", made[0].id))


@sensitive_variables("secret")
def mint(page: ConsolePage, form: KeyForm) -> ApiKey:
    """Mint what the form asks for, once, and lay its secret by; return the key."""
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
    shown_once.keep(page.request, key.id, secret)
    return key


@never_cache
@sensitive_variables("secret")
@console_page("keys")
def key_secret(page: ConsolePage, key_id: str) -> HttpResponse:
    """The new secret of a key, once."""
    found = key_of(page, key_id)
    secret = shown_once.take(page.request, found.id)
    if secret is None:
        words = f"The secret of {found.name} was shown already. If it is lost, rotate the key."
        messages.warning(page.request, words)
        return redirect(page.url("key", key_id))
    old = selectors.previous_secrets(found, timezone.now())
    context = {"key": found, "secret": secret, "old": old, "first_call": FirstCall(page)}
    return page.render("console/key_minted.html", context)


@console_page("keys")
def key(page: ConsolePage, key_id: str) -> HttpResponse:
    """One key: what it is, what it may do, its secrets, its end."""
    return show_key(page, key_of(page, key_id))


@require_POST
@console_page("keys")
def key_edit(page: ConsolePage, key_id: str) -> HttpResponse:
    """Change what a key may do, from where, and until when."""
    found = key_of(page, key_id)
    form = edit_form(page, found, page.request.POST)
    if form.is_valid() and carried_out(
        form, lambda: services.update_api_key(actor=page.actor, key=found, **form.rights())
    ):
        messages.success(page.request, "Saved; every gateway holds to it within a second.")
        return redirect(page.url("key", key_id))
    return show_key(page, found, edit=form)


@require_POST
@sensitive_variables("secret")
@console_page("keys")
def key_rotate(page: ConsolePage, key_id: str) -> HttpResponse:
    """Give the key a new secret; the one in use goes on for a while."""
    found = key_of(page, key_id)
    form = RotateForm(page.request.POST)
    made: list[str] = []

    def rotate() -> None:
        _, secret = services.rotate_key(
            actor=page.actor,
            key=found,
            last_four=form.cleaned_data["last_four"],
            old_secret_ends_at=form.ends_at(timezone.now()),
        )
        made.append(secret)

    if not form.is_valid() or not carried_out(form, rotate):
        return show_key(page, found, rotate=form)
    shown_once.keep(page.request, found.id, made[0])
    return redirect(page.url("key_secret", key_id))


@require_POST
@console_page("keys", needs_recent_proof=False)
def key_end_old(page: ConsolePage, key_id: str) -> HttpResponse:
    """End the secrets that were replaced."""
    found = key_of(page, key_id)
    services.revoke_previous_secrets(actor=page.actor, key=found)
    messages.success(page.request, f"Old secrets of {found.name} are refused within a second.")
    return redirect(page.url("key", key_id))


@require_POST
@console_page("keys", needs_recent_proof=False)
def key_revoke(page: ConsolePage, key_id: str) -> HttpResponse:
    """End the key."""
    found = key_of(page, key_id)
    form = RevokeForm(page.request.POST, key=found)
    if form.is_valid() and carried_out(
        form, lambda: services.revoke_key(actor=page.actor, key=found)
    ):
        words = f"{found.name} ({found.masked}) is revoked: it is refused within a second."
        messages.success(page.request, words)
        return redirect(page.url("keys"))
    return show_key(page, found, revoke=form)


def require_key_maker(page: ConsolePage) -> None:
    """Let pass who may make keys. Raises NotPermitted."""
    if not page.may(Permission.API_KEYS_WRITE):
        raise NotPermitted("An owner, admin or developer can create and revoke API keys.")


def key_of(page: ConsolePage, key_id: str) -> ApiKey:
    """Return a key that works and may be managed. Raises ObjectNotFound, NotPermitted."""
    found = selectors.key(page.organization, key_id)
    if found.revoked_at is not None or found.kind == ApiKeyKind.PLAYGROUND:
        raise ObjectNotFound("There is no such API key.")
    require_key_maker(page)
    return found


def may_change(page: ConsolePage, key: ApiKey) -> bool:
    """Whether the member is offered to change, rotate and revoke a key."""
    try:
        require_key_access(page.actor, key)
    except NotPermitted:
        return False
    return True


def edit_form(page: ConsolePage, key: ApiKey, data: QueryDict | None = None) -> EditForm:
    """Return the form of what may be changed."""
    return EditForm(data, key=key, may_manage=page.may(Permission.API_KEYS_GRANT))


def show_key(
    page: ConsolePage,
    key: ApiKey,
    *,
    edit: EditForm | None = None,
    rotate: RotateForm | None = None,
    revoke: RevokeForm | None = None,
) -> HttpResponse:
    """Return the page of one key, with the forms as they were sent."""
    now = timezone.now()
    context = {
        "key": key,
        "scopes": SCOPES.get(" ".join(key.scopes), ", ".join(key.scopes)),
        "is_test": key.prefix.startswith("pen_test_"),
        "old": selectors.previous_secrets(key, now),
        "may_change": may_change(page, key),
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
        "rotate": rotate or RotateForm(initial={"last_four": key.last_four}),
        "revoke": revoke or RevokeForm(key=key),
    }
    refused = any(form and form.errors for form in (edit, rotate, revoke))
    return page.render("console/key.html", context, status=400 if refused else 200)
