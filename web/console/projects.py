"""Projects: create, rename, set allowed origins, archive and restore."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.http import require_POST

from control.api_keys import selectors as keys
from control.errors import NotPermitted
from control.organizations import selectors
from control.organizations.models import Project
from control.organizations.projects import (
    archive_project,
    create_project,
    rename_project,
    restore_project,
    set_project_origins,
)
from control.permissions import Permission
from web.console.base import PageContext, address, console_page
from web.console.binding_limit import page_binding_limit
from web.console.forms import apply_or_form_error, save_edit, status_of
from web.console.settings import NameTypedForm, OriginsForm, RenameForm, TitleForm, rename_form


@console_page("settings")
def project_new(page: PageContext) -> HttpResponse:
    """Show the form; a POST creates a project and redirects to its overview."""
    if not page.may(Permission.PROJECTS_WRITE):
        raise NotPermitted(gettext("Only owners and admins can create projects."))
    form = TitleForm(page.request.POST or None)
    made: list[Project] = []
    if not form.is_valid() or not apply_or_form_error(
        form, lambda: made.append(create(page, form))
    ):
        return page.render("console/project_new.html", {"form": form}, status_of(form))
    [project] = made
    words = gettext("%(name)s is ready. Create its first API key.") % {"name": project.name}
    messages.success(page.request, words)
    return redirect(address(page.organization, "overview", project=project.id))


def create(page: PageContext, form: TitleForm) -> Project:
    """Create the form's project."""
    return create_project(
        actor=page.actor, organization=page.organization, name=form.cleaned_data["name"]
    )


@console_page("settings")
def project(page: PageContext, project_id: str) -> HttpResponse:
    """Show a project: its name, its allowed origins, and the form that archives it."""
    return render_project(page, selectors.project(page.organization, project_id))


@require_POST
@console_page("settings")
def project_rename(page: PageContext, project_id: str) -> HttpResponse:
    """Rename a project."""
    found = selectors.project(page.organization, project_id)
    form = RenameForm(page.request.POST)
    if save_edit(
        form,
        page.organization.id,
        lambda: rename_form(selectors.project(page.organization, project_id)),
        lambda: rename_project(actor=page.actor, project=found, name=form.cleaned_data["name"]),
    ):
        words = gettext("The project is now called %(name)s.")
        messages.success(page.request, words % {"name": form.cleaned_data["name"].strip()})
        return redirect(page.url("project", project_id))
    return render_project(page, found, rename=form)


@require_POST
@console_page("settings")
def project_origins(page: PageContext, project_id: str) -> HttpResponse:
    """Change the origins that may use a project's keys."""
    found = selectors.project(page.organization, project_id)
    form = OriginsForm(page.request.POST, project=found)
    if save_edit(
        form,
        page.organization.id,
        lambda: OriginsForm(project=selectors.project(page.organization, project_id)),
        lambda: set_project_origins(actor=page.actor, project=found, allowed_origins=form.origins),
    ):
        words = gettext("The allowed origins of %(name)s are in force within a second.")
        messages.success(page.request, words % {"name": found.name})
        return redirect(page.url("project", project_id))
    return render_project(page, found, origins=form)


@require_POST
@console_page("settings")
def project_archive(page: PageContext, project_id: str) -> HttpResponse:
    """Archive a project, confirmed by its name."""
    found = selectors.project(page.organization, project_id)
    form = NameTypedForm(page.request.POST, ends=found)
    if form.is_valid() and apply_or_form_error(
        form, lambda: archive_project(actor=page.actor, project=found)
    ):
        words = gettext("%(name)s is archived. Its API keys stop working within a second.")
        messages.success(page.request, words % {"name": found.name})
        return redirect(address(page.organization, "settings"))
    return render_project(page, found, archive=form)


@require_POST
@console_page("settings")
def project_restore(page: PageContext, project_id: str) -> HttpResponse:
    """Restore an archived project."""
    found = selectors.project(page.organization, project_id)
    restore_project(actor=page.actor, project=found)
    words = gettext("%(name)s is restored. Its API keys stay revoked.") % {"name": found.name}
    messages.success(page.request, words)
    return redirect(page.url("project", project_id))


def render_project(
    page: PageContext,
    project: Project,
    *,
    rename: RenameForm | None = None,
    origins: OriginsForm | None = None,
    archive: NameTypedForm | None = None,
) -> HttpResponse:
    """Return the page of a project, with the forms as they were submitted."""
    context = {
        "project": project,
        "key_count": keys.active_keys(page.organization, timezone.now(), project=project).count(),
        "binding": page_binding_limit(page, project=project),
        "may_limit": page.may(Permission.LIMITS_WRITE),
        "may_manage": page.may(Permission.PROJECTS_WRITE),
        "rename": rename or rename_form(project),
        "origins": origins or OriginsForm(project=project),
        "archive": archive or NameTypedForm(ends=project),
    }
    return page.render("console/project.html", context, status_of(rename, origins, archive))
