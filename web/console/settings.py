"""An organization's name, idempotency and deletion."""

from typing import Any

from django import forms
from django.conf import settings as config
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from control.accounts.models import NAME_MAX
from control.dataplane import idempotency
from control.errors import NotPermitted
from control.forms import VersionedForm
from control.organizations import selectors
from control.organizations.deletion import delete_organization, preview_deletion
from control.organizations.models import Organization, Project
from control.organizations.services import rename_organization, set_idempotency_enabled
from control.permissions import Permission
from serving.contract.idempotency import CLAIMS_MAX, HOURS_KEPT, KEPT_BYTES_MAX
from web.console.base import PageContext, console_page
from web.console.forms import apply_or_form_error, save_edit, status_of


class TitleForm(forms.Form):
    """The name of an organization or a project."""

    name = forms.CharField(max_length=NAME_MAX, label=_("Name"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].widget.attrs["autocomplete"] = "off"


class RenameForm(TitleForm, VersionedForm):
    """The name of an existing organization or project."""


class OriginsForm(VersionedForm):
    """The origins that may use a project's keys, one per line."""

    allowed_origins = forms.CharField(
        label=_("Allowed origins, one per line"),
        required=False,
        max_length=10_000,
        help_text=_(
            "Such as https://app.example.com. Leave empty to allow no calls from web pages."
        ),
        widget=forms.Textarea(
            attrs={"rows": 3, "spellcheck": "false", "placeholder": "https://app.example.com"}
        ),
    )

    def __init__(self, data: Any = None, *, project: Project) -> None:
        super().__init__(data, initial={"allowed_origins": "\n".join(project.allowed_origins)})

    @property
    def origins(self) -> list[str]:
        """The origins, in the order of the lines."""
        return str(self.cleaned_data["allowed_origins"]).split()


class NameTypedForm(forms.Form):
    """The name of the organization or project to end, typed to confirm."""

    confirmation = forms.CharField(label="", widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, ends: Organization | Project, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ends = ends
        label = gettext("Type “%(name)s” to confirm") % {"name": ends.name}
        self.fields["confirmation"].label = label

    def clean_confirmation(self) -> str:
        """Return the name. Raises ValidationError for any other."""
        typed = str(self.cleaned_data["confirmation"]).strip()
        if typed != self.ends.name:
            words = gettext("That is not “%(name)s”. Nothing was changed.")
            raise forms.ValidationError(words % {"name": self.ends.name})
        return typed


@console_page("settings")
def settings(page: PageContext) -> HttpResponse:
    """Show the settings with their forms."""
    return render_settings(page)


@require_POST
@console_page("settings")
def settings_rename(page: PageContext) -> HttpResponse:
    """Rename the organization."""
    form = RenameForm(page.request.POST)
    if save_edit(
        form,
        page.organization.id,
        lambda: rename_form(selectors.organization(page.organization.id)),
        lambda: rename_organization(
            actor=page.actor, organization=page.organization, name=form.cleaned_data["name"]
        ),
    ):
        words = gettext("The organization is now called %(name)s.")
        messages.success(page.request, words % {"name": form.cleaned_data["name"].strip()})
        return redirect(page.url("settings"))
    return render_settings(page, rename=form)


@require_POST
@console_page("settings")
def settings_idempotency(page: PageContext) -> HttpResponse:
    """Turn idempotency keys on or off."""
    is_on = page.request.POST.get("idempotency_enabled") == "1"
    set_idempotency_enabled(
        actor=page.actor, organization=page.organization, idempotency_enabled=is_on
    )
    if is_on:
        words = gettext("Idempotency keys are accepted within a second.")
    else:
        words = gettext("Idempotency keys are refused, and all stored responses are deleted.")
    messages.success(page.request, words)
    return redirect(page.url("settings"))


@console_page("settings")
def settings_delete(page: PageContext) -> HttpResponse:
    """Show what deleting the organization would do; a POST with its name deletes it."""
    if not page.may(Permission.ORGANIZATION_DELETE):
        raise NotPermitted(gettext("Only owners can delete the organization."))
    form = NameTypedForm(page.request.POST or None, ends=page.organization)
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: delete_organization(
            actor=page.actor,
            organization=page.organization,
            name=form.cleaned_data["confirmation"],
        ),
    ):
        words = gettext("%(name)s is deleted.") % {"name": page.organization.name}
        messages.success(page.request, words)
        return redirect("console:home")
    effects = preview_deletion(page.organization)
    context = {
        "form": form,
        "obstacles": [each.words for each in effects if each.is_obstacle],
        "follows": [each.words for each in effects if not each.is_obstacle],
    }
    return page.render("console/organization_delete.html", context, status_of(form))


def rename_form(named: Organization | Project) -> RenameForm:
    """Return the form with the present name."""
    return RenameForm(initial={"name": named.name})


def render_settings(page: PageContext, *, rename: RenameForm | None = None) -> HttpResponse:
    """Return the page, with a form as it was submitted."""
    context = {
        "shelf": idempotency.quota(page.organization),
        "claims_max": CLAIMS_MAX,
        "kept_bytes_max": KEPT_BYTES_MAX,
        "hours_kept": HOURS_KEPT,
        "minute_days": config.CONFIG.minute_usage_retention_days,
        "may_keep": page.may(Permission.DATA_RETENTION_WRITE),
        "may_manage": page.may(Permission.PROJECTS_WRITE),
        "may_rename": page.may(Permission.ORGANIZATION_UPDATE),
        "may_delete": page.may(Permission.ORGANIZATION_DELETE),
        "rename": rename or rename_form(page.organization),
        "rows": [(each, page.url("project", each.id)) for each in page.every_project],
    }
    return page.render("console/settings.html", context, status_of(rename))
