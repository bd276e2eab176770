"""Settings: the organization itself, its projects, what it lets its requests do, what is kept, and
its end."""

from django.conf import settings as config
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from control.dataplane import idempotency
from control.errors import NotPermitted
from control.organizations.deletion import delete_organization, preview_deletion
from control.organizations.services import rename_organization, set_idempotency_enabled
from control.permissions import Permission
from serving.contract.idempotency import CLAIMS_MAX, HOURS_KEPT, KEPT_BYTES_MAX
from web.console.page import ConsolePage, console_page
from web.console.refusals import carried_out
from web.console.settings_forms import NameTypedForm, TitleForm


@console_page("settings")
def settings(page: ConsolePage) -> HttpResponse:
    """What is set now, with the forms to change it."""
    return show(page)


@require_POST
@console_page("settings")
def settings_rename(page: ConsolePage) -> HttpResponse:
    """Give the organization another name."""
    form = TitleForm(page.request.POST)
    if form.is_valid() and carried_out(
        form,
        lambda: rename_organization(
            actor=page.actor, organization=page.organization, name=form.cleaned_data["name"]
        ),
    ):
        words = f"The organization is now called {form.cleaned_data['name'].strip()}."
        messages.success(page.request, words)
        return redirect(page.url("settings"))
    return show(page, rename=form)


@require_POST
@console_page("settings")
def settings_idempotency(page: ConsolePage) -> HttpResponse:
    """Take idempotency keys, or no more."""
    takes = page.request.POST.get("takes_idempotency_keys") == "1"
    set_idempotency_enabled(
        actor=page.actor, organization=page.organization, takes_idempotency_keys=takes
    )
    state = "taken within a second" if takes else "refused, and all kept answers are erased"
    messages.success(page.request, f"Idempotency keys are {state}.")
    return redirect(page.url("settings"))


@console_page("settings")
def settings_delete(page: ConsolePage) -> HttpResponse:
    """Say what deleting the organization would do; with its name typed, do it."""
    if not page.may(Permission.ORGANIZATION_DELETE):
        raise NotPermitted("An owner can delete the organization.")
    form = NameTypedForm(page.request.POST or None, ends=page.organization)
    if form.is_valid() and carried_out(
        form,
        lambda: delete_organization(
            actor=page.actor,
            organization=page.organization,
            name=form.cleaned_data["confirmation"],
        ),
    ):
        messages.success(page.request, f"{page.organization.name} is deleted.")
        return redirect("console:home")
    follows = preview_deletion(page.organization)
    context = {
        "form": form,
        "obstacles": [each.words for each in follows if each.is_obstacle],
        "follows": [each.words for each in follows if not each.is_obstacle],
    }
    status = 400 if form.errors else 200
    return page.render("console/organization_delete.html", context, status)


def show(page: ConsolePage, *, rename: TitleForm | None = None) -> HttpResponse:
    """Return the page, with a form as it was sent."""
    context = {
        "shelf": idempotency.quota(page.organization),
        "claims_max": CLAIMS_MAX,
        "kept_bytes_max": KEPT_BYTES_MAX,
        "hours_kept": HOURS_KEPT,
        "minute_days": config.CONFIG.minute_rollup_days,
        "may_keep": page.may(Permission.DATA_RETENTION_WRITE),
        "may_manage": page.may(Permission.PROJECTS_WRITE),
        "may_rename": page.may(Permission.ORGANIZATION_UPDATE),
        "may_delete": page.may(Permission.ORGANIZATION_DELETE),
        "rename": rename or TitleForm(initial={"name": page.organization.name}),
        "rows": [(each, page.url("project", each.id)) for each in page.every_project],
    }
    return page.render("console/settings.html", context, 400 if rename else 200)
