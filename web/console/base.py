"""One page of the console: who looks, at which organization and project, and how it is framed."""

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

from billing.collection.selectors import marked
from control import permissions
from control.accounts.models import User
from control.errors import NotPermitted, ObjectNotFound, ServiceError
from control.organizations import selectors as tenants
from control.organizations.access import actor_for_member
from control.organizations.models import Membership, Organization, Project
from control.permissions import Actor
from control.reauthentication import ask, is_recent
from control.request_context import bind_log_ids

P = ParamSpec("P")

SECTIONS = {
    "overview": "Overview",
    "playground": "Playground",
    "models": "Models",
    "keys": "API keys",
    "usage": "Usage",
    "requests": "Requests",
    "billing": "Billing",
    "invoices": "Invoices",
    "webhooks": "Webhooks",
    "team": "Team",
    "settings": "Settings",
    "audit": "Audit",
}
"""The pages there are; a page that does not exist yet is not offered."""
FOR_SOME = {
    "billing": permissions.Permission.BILLING_READ,
    "invoices": permissions.Permission.BILLING_READ,
    "webhooks": permissions.Permission.WEBHOOKS_WRITE,
    "audit": permissions.Permission.AUDIT_READ,
}
"""What not every role may see."""
NEED_RECENT_PROOF = {"billing", "invoices", "keys", "limits"}
"""Whose forms are carried out only soon after a sign-in, or after another proof."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of the rail or the switcher."""

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
    """Whether the organization has something to pay that is overdue."""

    @property
    def projects(self) -> list[Project]:
        """The projects that are not archived."""
        return [project for project in self.every_project if not project.is_archived]

    @property
    def actor(self) -> Actor:
        """The member, as services know them."""
        return actor_for_member(self.membership)

    def may(self, action: permissions.Permission) -> bool:
        """Whether the member's role allows an action."""
        return permissions.can(self.membership.role, action)

    def url(self, section: str, *arguments: str, **parameters: str) -> str:
        """Return an address in this organization that keeps the chosen project."""
        kept = {"project": self.project.id} if self.project else {}
        return address(self.organization, section, *arguments, **(kept | parameters))

    @property
    def nav(self) -> list[Choice]:
        """The rail's lines."""
        return [
            Choice(label, self.url(section), section == self.section, icon=section)
            for section, label in SECTIONS.items()
            if section not in FOR_SOME or self.may(FOR_SOME[section])
        ]

    @property
    def may_manage_projects(self) -> bool:
        """Whether the switcher offers to create a project."""
        return self.may(permissions.Permission.PROJECTS_WRITE)

    @property
    def may_see_money(self) -> bool:
        """Whether a page points to Billing."""
        return self.may(permissions.Permission.BILLING_READ)

    @property
    def all_projects_url(self) -> str:
        """This section for the whole organization."""
        return address(self.organization, self.section)

    @property
    def project_choices(self) -> list[Choice]:
        """This section for each project."""
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
        """This section in each organization of the member."""
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
    """Return the address of a section of an organization; empty parameters are left out."""
    path = reverse(f"console:{section}", args=[organization.id, *arguments])
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{path}?{query}" if query else path


def console_page(
    section: str, *, needs_recent_proof: bool | None = None
) -> Callable[[View[P]], Routed]:
    """Make a view that takes a page out of one that takes a request and an organization's id.

    A form of a section that moves money or makes keys is carried out for who proved lately who they
    are; `needs_recent_proof` says otherwise of one view.
    """
    if needs_recent_proof is None:
        needs_recent_proof = section in NEED_RECENT_PROOF

    def of(view: View[P]) -> Routed:
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
            except ServiceError as refused:
                return _show_refusal(page, refused)

        return routed

    return of


def _show_refusal(page: PageContext, refused: ServiceError) -> HttpResponse:
    """Say above the section what a form without fields was refused. Raises the refusal where Django
    has a page for it, and where a page was looked at."""
    if isinstance(refused, (ObjectNotFound, NotPermitted)) or page.request.method != "POST":
        raise refused
    messages.error(page.request, refused.message)
    return redirect(page.url(page.section))


def get_page_context(request: HttpRequest, organization_id: str, section: str) -> PageContext:
    """Return the page of a signed-in user. Raises ObjectNotFound for an outsider."""
    user = require_login(request)
    seats = marked(tenants.memberships(user))
    memberships = list(seats)
    membership = next((m for m in memberships if m.organization_id == organization_id), None)
    if membership is None:
        raise ObjectNotFound("There is no such organization.")
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
    )


def require_login(request: HttpRequest) -> User:
    """Return who is signed in. Raises ObjectNotFound for nobody."""
    if not isinstance(request.user, User):
        raise ObjectNotFound("Nobody is signed in.")
    return request.user


def project_of(projects: Sequence[Project], project_id: str) -> Project | None:
    """Return the project in the address, None for all. Raises ObjectNotFound for another's."""
    if not project_id:
        return None
    found = next((project for project in projects if project.id == project_id), None)
    if found is None:
        raise ObjectNotFound("There is no such project.")
    return found
