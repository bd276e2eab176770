"""The page that the email of an invitation links to: what is offered, its state, and what to do
next. Operators' invitations use it too."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from control.accounts.models import User
from control.db.models import InvitationState

TEMPLATE = "allauth/layouts/invitation.html"


class Offer(Protocol):
    """An invitation of either kind."""

    email: str
    expires_at: datetime
    invited_by: User | None

    def get_role_display(self) -> str:
        """Return the role's label."""

    def state(self, now: datetime) -> InvitationState:
        """Return whether it can be accepted."""


@dataclass(frozen=True, slots=True)
class InvitationPage:
    """An invitation as somebody sees it who has its link. `name` is what they are invited to,
    `home_url` its first page; `viewer` is empty for somebody who is not signed in."""

    invitation: Offer
    name: str
    state: InvitationState
    viewer: str
    is_member: bool
    home_url: str

    @property
    def is_open(self) -> bool:
        """Whether the invited person can accept it now."""
        return self.state == InvitationState.OPEN

    @property
    def is_for_another(self) -> bool:
        """Whether the person who is signed in is not the invited one."""
        return bool(self.viewer) and self.viewer != self.invitation.email


def render_invitation(
    request: HttpRequest,
    invitation: Offer | None,
    *,
    name: str = "",
    is_member: bool = False,
    home_url: str = "",
    status: int = 200,
) -> HttpResponse:
    """Return the page of an invitation; a 404 for a link that belongs to none."""
    if invitation is None:
        return render(request, TEMPLATE, {"link": request.path}, status=404)
    page = InvitationPage(
        invitation=invitation,
        name=name,
        state=invitation.state(timezone.now()),
        viewer=request.user.email if isinstance(request.user, User) else "",
        is_member=is_member,
        home_url=home_url,
    )
    return render(request, TEMPLATE, {"offer": page, "link": request.path}, status=status)
