"""API keys: mint, rename, revoke. A secret is shown in the answer that minted it, nowhere else."""

from dataclasses import dataclass
from datetime import timedelta

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from billing.reading import selectors as reading
from billing.reading.filters import UsageFilters
from control.errors import NotFound, NotPermitted
from control.keys import selectors, services
from control.keys.models import ApiKey, Kind
from control.tenants.permissions import Action
from web.console.first_call import FirstCall
from web.console.forms import SCOPES, KeyForm, NameForm, RevokeForm
from web.console.page import ConsolePage, console_page
from web.console.refusals import carried_out

USAGE_DAYS = 30


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key and the address of its page."""

    key: ApiKey
    url: str


@console_page("keys")
def keys(page: ConsolePage) -> HttpResponse:
    """The keys that work."""
    found = selectors.keys(page.organization, project=page.project)
    context = {
        "keys": [KeyRow(key, page.url("key", key.id)) for key in found],
        "may_manage": page.may(Action.MAKE_KEYS),
        "first_call": FirstCall(page),
    }
    return page.render("console/keys.html", context)


@never_cache
@sensitive_variables("secret")
@console_page("keys")
def key_new(page: ConsolePage) -> HttpResponse:
    """The form, and after it the secret."""
    require_key_maker(page)
    form = KeyForm(
        page.request.POST or None,
        projects=page.projects,
        initial={"project": page.project.id if page.project else ""},
        may_manage=page.may(Action.MAKE_MANAGE_KEYS),
    )
    made: list[tuple[ApiKey, str]] = []
    if not form.is_valid() or not carried_out(form, lambda: made.append(mint(page, form))):
        return page.render("console/key_new.html", {"form": form})
    [(key, secret)] = made
    context = {"key": key, "secret": secret, "first_call": FirstCall(page)}
    return page.render("console/key_minted.html", context, status=201)


def mint(page: ConsolePage, form: KeyForm) -> tuple[ApiKey, str]:
    """Mint what the form asks for; return the key and its secret."""
    return services.mint_key(
        actor=page.actor,
        project=next(each for each in page.projects if each.id == form.cleaned_data["project"]),
        name=form.cleaned_data["name"],
        scopes=form.scopes_chosen(),
        expires_at=form.expires_at(timezone.now()),
        spend_limit_nanos=form.cleaned_data["limit"],
    )


@console_page("keys")
def key(page: ConsolePage, key_id: str) -> HttpResponse:
    """One key: what it is, its name, its end."""
    return show_key(page, key_of(page, key_id))


@require_POST
@console_page("keys")
def key_rename(page: ConsolePage, key_id: str) -> HttpResponse:
    """Give the key another name."""
    found = key_of(page, key_id)
    form = NameForm(page.request.POST)
    if form.is_valid() and carried_out(
        form,
        lambda: services.rename_key(actor=page.actor, key=found, name=form.cleaned_data["name"]),
    ):
        messages.success(page.request, f"The key is now called {form.cleaned_data['name']}.")
        return redirect(page.url("key", key_id))
    return show_key(page, found, rename=form)


@require_POST
@console_page("keys")
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
    if not page.may(Action.MAKE_KEYS):
        raise NotPermitted("An owner, admin or developer can create and revoke API keys.")


def key_of(page: ConsolePage, key_id: str) -> ApiKey:
    """Return a key that works and may be managed. Raises NotFound, NotPermitted."""
    found = selectors.key(page.organization, key_id)
    if found.revoked_at is not None or found.kind == Kind.PLAYGROUND:
        raise NotFound("There is no such API key.")
    require_key_maker(page)
    return found


def show_key(
    page: ConsolePage,
    key: ApiKey,
    *,
    rename: NameForm | None = None,
    revoke: RevokeForm | None = None,
) -> HttpResponse:
    """Return the page of one key, with the forms as they were sent."""
    now = timezone.now()
    context = {
        "key": key,
        "scopes": SCOPES.get(" ".join(key.scopes), ", ".join(key.scopes)),
        "sums": reading.usage_totals(
            page.organization,
            now - timedelta(days=USAGE_DAYS),
            now,
            filters=UsageFilters(key_ids=(key.id,)),
        ),
        "usage_url": page.url("usage", key=key.id),
        "rename": rename or NameForm(initial={"name": key.name}),
        "revoke": revoke or RevokeForm(key=key),
    }
    refused = (rename and rename.errors) or (revoke and revoke.errors)
    return page.render("console/key.html", context, status=400 if refused else 200)
