"""The context and frame of a console page: the member, the organization and the project."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.collection.selectors import marked
from control import permissions
from control.accounts.models import User
from control.errors import NotPermitted, ObjectNotFound, ServiceError
from control.organizations import selectors as tenants
from control.organizations.models import Membership, Organization, Project
from control.organizations.services import why_suspended
from control.permissions import Actor
from control.reauthentication import ask, is_recent
from control.request_context import bind_log_ids

P = ParamSpec("P")

SECTIONS = {
    "overview": _("Overview"),
    "playground": _("Playground"),
    "models": _("Models"),
    "keys": _("API keys"),
    "usage": _("Usage"),
    "requests": _("Requests"),
    "billing": _("Billing"),
    "invoices": _("Invoices"),
    "webhooks": _("Webhooks"),
    "team": _("Team"),
    "settings": _("Settings"),
    "audit": _("Audit log"),
}
"""The sections of the console and their labels, in the navigation's order."""
FOR_SOME = {
    "billing": permissions.Permission.BILLING_READ,
    "invoices": permissions.Permission.BILLING_READ,
    "webhooks": permissions.Permission.WEBHOOKS_WRITE,
    "audit": permissions.Permission.AUDIT_READ,
}
"""The permission to see a section, for those that not every role may see."""
NEED_RECENT_PROOF = {"billing", "invoices", "keys", "limits"}
"""Sections whose forms need a recent sign-in or reauthentication."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One entry of the navigation or the switcher."""

    label: str
    url: str
    is_current: bool
    icon: str = ""


@dataclass(frozen=True, slots=True)
class PageContext:
    """A member's view of one organization; `project` narrows it to one project."""

    request: HttpRequest
    user: User
    organization: Organization
    membership: Membership
    memberships: Sequence[Membership]
    every_project: list[Project]
    project: Project | None
    section: str
    is_overdue: bool = False
    """Whether the organization has an overdue payment."""
    is_suspended_for_payment: bool = False
    """Whether the organization is suspended until that is paid, and no operator suspended it."""

    @property
    def projects(self) -> list[Project]:
        """The projects that are not archived."""
        return [project for project in self.every_project if not project.is_archived]

    @property
    def actor(self) -> Actor:
        """The member as the actor of services."""
        return Actor.for_member(self.membership)

    def may(self, action: permissions.Permission) -> bool:
        """Return whether the member's role allows an action."""
        return permissions.can(self.membership.role, action)

    def url(self, section: str, *arguments: str, **parameters: str) -> str:
        """Return a URL in this organization that keeps the chosen project."""
        project = {"project": self.project.id} if self.project else {}
        return address(self.organization, section, *arguments, **(project | parameters))

    @property
    def nav(self) -> list[Choice]:
        """The navigation's entries."""
        return [
            Choice(str(label), self.url(section), section == self.section, icon=section)
            for section, label in SECTIONS.items()
            if section not in FOR_SOME or self.may(FOR_SOME[section])
        ]

    @property
    def may_manage_projects(self) -> bool:
        """Whether the member may create projects."""
        return self.may(permissions.Permission.PROJECTS_WRITE)

    @property
    def may_see_money(self) -> bool:
        """Whether the member may see amounts and Billing."""
        return self.may(permissions.Permission.BILLING_READ)

    @property
    def why_suspended(self) -> str:
        """Why the operator suspended the organization, and whom to ask."""
        return why_suspended(self.organization)

    @property
    def all_projects_url(self) -> str:
        """The URL of this section for the whole organization."""
        return address(self.organization, self.section)

    @property
    def project_choices(self) -> list[Choice]:
        """Links to this section for each project."""
        return [
            Choice(
                project.name,
                address(self.organization, self.section, project=project.id),
                project == self.project,
            )
            for project in self.projects
        ]

    @property
    def organization_choices(self) -> list[Choice]:
        """Links to this section in each organization of the member."""
        return [
            Choice(
                membership.organization.name,
                address(membership.organization, self.section),
                membership.organization == self.organization,
            )
            for membership in self.memberships
        ]

    def render(
        self, template: str, context: Mapping[str, object] | None = None, status: int = 200
    ) -> HttpResponse:
        """Return the page in its frame."""
        return render(self.request, template, {"page": self, **(context or {})}, status=status)


View = Callable[Concatenate[PageContext, P], HttpResponseBase]
Routed = Callable[..., HttpResponseBase]


def address(organization: Organization, section: str, *arguments: str, **parameters: str) -> str:
    """Return the URL of a section of an organization, without empty parameters."""
    path = reverse(f"console:{section}", args=[organization.id, *arguments])
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{path}?{query}" if query else path


def console_page(
    section: str, *, needs_recent_proof: bool | None = None
) -> Callable[[View[P]], Routed]:
    """Turn a view that takes a PageContext into one that takes a request and an organization id.

    A POST in a section that moves money or creates keys needs a recent sign-in;
    `needs_recent_proof` overrides this for one view.
    """
    if needs_recent_proof is None:
        needs_recent_proof = section in NEED_RECENT_PROOF

    def decorate(view: View[P]) -> Routed:
        @login_required
        @wraps(view)
        def routed(
            request: HttpRequest, organization_id: str, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponseBase:
            page = get_page_context(request, organization_id, section)
            if request.method == "POST" and needs_recent_proof and not is_recent(request):
                return ask(request, back=page.url(section))
            try:
                return view(page, *args, **kwargs)
            except ServiceError as error:
                return _show_error(page, error)

        routed.home = f"console:{section}"  # type: ignore[attr-defined]
        return routed

    return decorate


def _show_error(page: PageContext, error: ServiceError) -> HttpResponse:
    """Show the error of a form without fields as a message above its section.

    An error that Django has a page for, or of a GET, is raised again.
    """
    if isinstance(error, (ObjectNotFound, NotPermitted)) or page.request.method != "POST":
        raise error
    messages.error(page.request, error.message)
    return redirect(page.url(page.section))


def get_page_context(request: HttpRequest, organization_id: str, section: str) -> PageContext:
    """Return the page context of a member. Raises ObjectNotFound for anybody else."""
    user = require_login(request)
    memberships = list(marked(tenants.memberships(user)))
    membership = next((m for m in memberships if m.organization_id == organization_id), None)
    if membership is None:
        raise ObjectNotFound(gettext("There is no such organization."))
    bind_log_ids(organization_id=organization_id, user_id=user.id)
    every_project = list(tenants.projects(membership.organization, with_archived=True))
    open_projects = [project for project in every_project if not project.is_archived]
    return PageContext(
        request=request,
        user=user,
        organization=membership.organization,
        membership=membership,
        memberships=memberships,
        every_project=every_project,
        project=project_of(open_projects, request.GET.get("project", "")),
        section=section,
        is_overdue=membership.is_overdue,
        is_suspended_for_payment=membership.is_suspended_for_payment,
    )


def require_login(request: HttpRequest) -> User:
    """Return the signed-in user. Raises ObjectNotFound if there is none."""
    if not isinstance(request.user, User):
        raise ObjectNotFound(gettext("Nobody is signed in."))
    return request.user


def project_of(projects: Sequence[Project], project_id: str) -> Project | None:
    """Return the project with an id; None for no id. Raises ObjectNotFound for any other id."""
    if not project_id:
        return None
    found = next((project for project in projects if project.id == project_id), None)
    if found is None:
        raise ObjectNotFound(gettext("There is no such project."))
    return found
