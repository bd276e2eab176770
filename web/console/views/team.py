"""The team: who has a seat, who was offered one, and what each may do."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from control.api_keys import selectors as keys
from control.errors import NotPermitted
from control.organizations import selectors
from control.organizations.members import (
    change_role,
    invite_member,
    remove_member,
    resend_invitation,
    revoke_invitation,
)
from control.organizations.models import Invitation, Membership
from control.permissions import Permission, Role, can
from web.console.page import ConsolePage, console_page
from web.console.refusals import carried_out
from web.console.team_forms import ROLES, InviteForm, RemoveForm, RoleForm, role_choices


@dataclass(frozen=True, slots=True)
class Seat:
    """A member, how many API keys they made, and the address of their page."""

    membership: Membership
    key_count: int
    url: str
    is_self: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """An invitation, and whether it may still be accepted."""

    invitation: Invitation
    is_over: bool


@console_page("team")
def team(page: ConsolePage) -> HttpResponse:
    """Members, and for who may change them the invitations."""
    return show_team(page)


@require_POST
@console_page("team")
def team_invite(page: ConsolePage) -> HttpResponse:
    """Offer a seat by mail."""
    form = InviteForm(page.request.POST, choices=choices(page))
    if form.is_valid() and carried_out(
        form,
        lambda: invite_member(
            actor=page.actor, organization=page.organization, **form.cleaned_data
        ),
    ):
        messages.success(
            page.request, f"An invitation is on its way to {form.cleaned_data['email']}."
        )
        return redirect(page.url("team"))
    return show_team(page, invite=form)


@require_POST
@console_page("team")
def invitation_renew(page: ConsolePage, invitation_id: str) -> HttpResponse:
    """Mail an invitation anew."""
    found = offered(page, invitation_id)
    resend_invitation(actor=page.actor, invitation=found)
    messages.success(page.request, f"A new invitation is on its way to {found.email}.")
    return redirect(page.url("team"))


@require_POST
@console_page("team")
def invitation_withdraw(page: ConsolePage, invitation_id: str) -> HttpResponse:
    """Let an invitation open nothing more."""
    found = offered(page, invitation_id)
    revoke_invitation(actor=page.actor, invitation=found)
    messages.success(page.request, f"The invitation of {found.email} is withdrawn.")
    return redirect(page.url("team"))


@console_page("team")
def member(page: ConsolePage, member_id: str) -> HttpResponse:
    """One member: the role, and the end of the seat."""
    return show_member(page, selectors.member(page.organization, member_id))


@require_POST
@console_page("team")
def member_role(page: ConsolePage, member_id: str) -> HttpResponse:
    """Give a member another role."""
    seat = selectors.member(page.organization, member_id)
    form = RoleForm(page.request.POST, choices=choices(page))
    if form.is_valid() and carried_out(
        form,
        lambda: change_role(actor=page.actor, membership=seat, role=form.cleaned_data["role"]),
    ):
        role = Role(form.cleaned_data["role"]).label.lower()
        messages.success(page.request, f"{seat.user.email} is now {role}.")
        return redirect(page.url("team"))
    return show_member(page, seat, role=form)


@require_POST
@console_page("team")
def member_remove(page: ConsolePage, member_id: str) -> HttpResponse:
    """Take a member's seat, or leave."""
    seat = selectors.member(page.organization, member_id)
    form = RemoveForm(page.request.POST, seat=seat, heirs=heirs(page, seat))
    if not form.is_valid() or not carried_out(form, lambda: remove(page, seat, form)):
        return show_member(page, seat, remove=form)
    if seat.user_id == page.user.id:
        messages.success(page.request, f"You left {page.organization.name}.")
        return redirect("console:home")
    messages.success(page.request, f"{seat.user.email} is no member any more.")
    return redirect(page.url("team"))


def remove(page: ConsolePage, seat: Membership, form: RemoveForm) -> None:
    """End a seat as the form says."""
    keys_to = form.cleaned_data.get("keys_to")
    heir = selectors.member(page.organization, keys_to) if keys_to else None
    remove_member(actor=page.actor, membership=seat, heir=heir)


def choices(page: ConsolePage) -> list[tuple[str, str]]:
    """Return the roles that the member may give."""
    return role_choices(may_manage_owners=page.may(Permission.OWNERS_WRITE))


def heirs(page: ConsolePage, seat: Membership) -> Sequence[Membership]:
    """Return who may take a member's keys."""
    members = selectors.members(page.organization)
    return [one for one in members if one != seat and can(one.role, Permission.API_KEYS_WRITE)]


def may_change(page: ConsolePage, seat: Membership) -> bool:
    """Tell whether the member may change a seat."""
    is_owners = seat.role == Role.OWNER
    return page.may(Permission.OWNERS_WRITE if is_owners else Permission.MEMBERS_WRITE)


def offered(page: ConsolePage, invitation_id: str) -> Invitation:
    """Return an open invitation. Raises ObjectNotFound, NotPermitted."""
    if not page.may(Permission.MEMBERS_WRITE):
        raise NotPermitted("An owner or admin can invite people.")
    return selectors.invitation(page.organization, invitation_id)


def show_team(page: ConsolePage, *, invite: InviteForm | None = None) -> HttpResponse:
    """Return the page, with the form as it was sent."""
    may_manage, now = page.may(Permission.MEMBERS_WRITE), timezone.now()
    made = keys.key_counts(page.organization)
    context = {
        "seats": [
            Seat(one, made.get(one.user_id, 0), page.url("member", one.id), one.user == page.user)
            for one in selectors.members(page.organization)
        ],
        "offers": [
            Offer(one, one.expires_at <= now)
            for one in (selectors.open_invitations(page.organization) if may_manage else ())
        ],
        "may_manage": may_manage,
        "roles": [(role.label, may) for role, may in ROLES.items()],
        "invite": invite or InviteForm(choices=choices(page), initial={"role": Role.DEVELOPER}),
    }
    refused = invite is not None and invite.errors
    return page.render("console/team.html", context, status=400 if refused else 200)


def show_member(
    page: ConsolePage,
    seat: Membership,
    *,
    role: RoleForm | None = None,
    remove: RemoveForm | None = None,
) -> HttpResponse:
    """Return the page of one member, with the forms as they were sent."""
    is_self = seat.user_id == page.user.id
    context = {
        "seat": seat,
        "may": ROLES[Role(seat.role)],
        "key_count": keys.key_counts(page.organization).get(seat.user_id, 0),
        "is_self": is_self,
        "may_change": may_change(page, seat),
        "may_remove": is_self or may_change(page, seat),
        "role": role or RoleForm(choices=choices(page), initial={"role": seat.role}),
        "remove": remove or RemoveForm(seat=seat, heirs=heirs(page, seat)),
    }
    refused = (role and role.errors) or (remove and remove.errors)
    return page.render("console/member.html", context, status=400 if refused else 200)
