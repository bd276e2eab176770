"""Settings: what an organization lets its requests do."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from control.idempotency import selectors as idempotency
from control.tenants import selectors as tenants
from control.tenants import services
from control.tenants.permissions import Action
from serving.contract.idempotency import CLAIMS_MAX, HOURS_KEPT, KEPT_BYTES_MAX
from web.console.page import ConsolePage, console_page
from web.console.refusals import carried_out
from web.console.settings_forms import OriginsForm


@console_page("settings")
def settings(page: ConsolePage) -> HttpResponse:
    """What is allowed now, with the forms to change it."""
    return show(page)


@require_POST
@console_page("settings")
def settings_idempotency(page: ConsolePage) -> HttpResponse:
    """Take idempotency keys, or no more."""
    takes = page.request.POST.get("takes_idempotency_keys") == "1"
    services.set_taking_idempotency_keys(
        actor=page.actor, organization=page.organization, takes_idempotency_keys=takes
    )
    state = "taken within a second" if takes else "refused, and all kept answers are erased"
    messages.success(page.request, f"Idempotency keys are {state}.")
    return redirect(page.url("settings"))


@require_POST
@console_page("settings")
def settings_origins(page: ConsolePage, project_id: str) -> HttpResponse:
    """Change whose pages may call with a project's keys."""
    project = tenants.project(page.organization, project_id)
    form = OriginsForm(page.request.POST, project=project)
    if form.is_valid() and carried_out(
        form,
        lambda: services.set_project_origins(
            actor=page.actor, project=project, allowed_origins=form.origins
        ),
    ):
        messages.success(page.request, f"The origins of {project.name} are in force in a second.")
        return redirect(page.url("settings"))
    return show(page, changed=form)


def show(page: ConsolePage, *, changed: OriginsForm | None = None) -> HttpResponse:
    """Return the page, with a form as it was sent."""
    forms_by_project = [
        changed
        if changed is not None and changed.project == project
        else OriginsForm(project=project)
        for project in page.projects
    ]
    context = {
        "shelf": idempotency.shelf(page.organization),
        "claims_max": CLAIMS_MAX,
        "kept_bytes_max": KEPT_BYTES_MAX,
        "hours_kept": HOURS_KEPT,
        "may_keep": page.may(Action.KEEP_ANSWERS),
        "may_manage": page.may(Action.MANAGE_PROJECTS),
        "forms": forms_by_project,
    }
    return page.render("console/settings.html", context, 400 if changed else 200)
