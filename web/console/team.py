"""Members and invitations: list, invite, change roles, remove."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from control.accounts.models import EMAIL_MAX
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
from web.console.base import PageContext, console_page
from web.console.forms import apply_or_form_error

ROLES = {
    Role.OWNER: "everything, the organization's name and its owners included",
    Role.ADMIN: "everything but the organization's name and its owners",
    Role.DEVELOPER: "make API keys and see usage; no money",
    Role.BILLING: "see and pay money, set limits; no keys",
    Role.VIEWER: "look at usage; no keys, no money",
}
"""What each role may do, in words."""


def role_choices(*, may_manage_owners: bool) -> list[tuple[str, str]]:
    """Return the roles that somebody may give, each with what it may do."""
    return [
        (role.value, f"{role.label}: {may}")
        for role, may in ROLES.items()
        if may_manage_owners or role != Role.OWNER
    ]


class MemberRoleForm(forms.Form):
    """A role."""

    role = forms.ChoiceField(label="Role")

    def __init__(self, *args: Any, choices: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"] = forms.ChoiceField(label="Role", choices=choices)


class InviteMemberForm(MemberRoleForm):
    """A seat for somebody."""

    email = forms.EmailField(
        label="E-mail address",
        max_length=EMAIL_MAX,
        widget=forms.EmailInput(attrs={"autocomplete": "off", "placeholder": "ada@example.com"}),
    )
    field_order = ("email", "role")


class RemoveMemberForm(forms.Form):
    """The member's address, typed by who means it, and who takes their keys."""

    keys_to = forms.ChoiceField(label="Their API keys", required=False)
    confirmation = forms.CharField(label="", widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(
        self, *args: Any, seat: Membership, heirs: Sequence[Membership], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.seat = seat
        choices = [("", "End within a second"), *((one.id, _passed(one)) for one in heirs)]
        self.fields["keys_to"] = forms.ChoiceField(
            label="Their API keys",
            choices=choices,
            required=False,
            help_text="Keys of the management API end where the other may not make such.",
        )
        self.fields["confirmation"].label = f"Type {seat.user.email} to confirm"
        if not heirs:
            del self.fields["keys_to"]

    def clean_confirmation(self) -> str:
        """Return the address. Raises ValidationError when it is another."""
        typed = str(self.cleaned_data["confirmation"]).strip().lower()
        if typed != self.seat.user.email:
            raise forms.ValidationError(f"This is not {self.seat.user.email}.")
        return typed


def _passed(seat: Membership) -> str:
    return f"Go on, as those of {seat.user.email}"


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member, how many API keys they made, and the address of their page."""

    membership: Membership
    key_count: int
    url: str
    is_self: bool


@dataclass(frozen=True, slots=True)
class InvitationRow:
    """An invitation, and whether it may still be accepted."""

    invitation: Invitation
    is_over: bool


@console_page("team")
def team(page: PageContext) -> HttpResponse:
    """Members, and for who may change them the invitations."""
    return render_team(page)


@require_POST
@console_page("team")
def team_invite(page: PageContext) -> HttpResponse:
    """Offer a seat by mail."""
    form = InviteMemberForm(page.request.POST, choices=choices(page))
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: invite_member(
            actor=page.actor, organization=page.organization, **form.cleaned_data
        ),
    ):
        messages.success(
            page.request, f"An invitation is on its way to {form.cleaned_data['email']}."
        )
        return redirect(page.url("team"))
    return render_team(page, invite=form)


@require_POST
@console_page("team")
def invitation_renew(page: PageContext, invitation_id: str) -> HttpResponse:
    """Mail an invitation anew."""
    found = invitation_rows(page, invitation_id)
    resend_invitation(actor=page.actor, invitation=found)
    messages.success(page.request, f"A new invitation is on its way to {found.email}.")
    return redirect(page.url("team"))


@require_POST
@console_page("team")
def invitation_withdraw(page: PageContext, invitation_id: str) -> HttpResponse:
    """Let an invitation open nothing more."""
    found = invitation_rows(page, invitation_id)
    revoke_invitation(actor=page.actor, invitation=found)
    messages.success(page.request, f"The invitation of {found.email} is withdrawn.")
    return redirect(page.url("team"))


@console_page("team")
def member(page: PageContext, member_id: str) -> HttpResponse:
    """One member: the role, and the end of the seat."""
    return render_member(page, selectors.member(page.organization, member_id))


@require_POST
@console_page("team")
def member_role(page: PageContext, member_id: str) -> HttpResponse:
    """Give a member another role."""
    seat = selectors.member(page.organization, member_id)
    form = MemberRoleForm(page.request.POST, choices=choices(page))
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: change_role(actor=page.actor, membership=seat, role=form.cleaned_data["role"]),
    ):
        role = Role(form.cleaned_data["role"]).label.lower()
        messages.success(page.request, f"{seat.user.email} is now {role}.")
        return redirect(page.url("team"))
    return render_member(page, seat, role=form)


@require_POST
@console_page("team")
def member_remove(page: PageContext, member_id: str) -> HttpResponse:
    """Take a member's seat, or leave."""
    seat = selectors.member(page.organization, member_id)
    form = RemoveMemberForm(page.request.POST, seat=seat, heirs=transfer_targets(page, seat))
    if not form.is_valid() or not apply_or_form_error(form, lambda: remove(page, seat, form)):
        return render_member(page, seat, remove=form)
    if seat.user_id == page.user.id:
        messages.success(page.request, f"You left {page.organization.name}.")
        return redirect("console:home")
    messages.success(page.request, f"{seat.user.email} is no member any more.")
    return redirect(page.url("team"))


def remove(page: PageContext, seat: Membership, form: RemoveMemberForm) -> None:
    """End a seat as the form says."""
    keys_to = form.cleaned_data.get("keys_to")
    heir = selectors.member(page.organization, keys_to) if keys_to else None
    remove_member(actor=page.actor, membership=seat, heir=heir)


def choices(page: PageContext) -> list[tuple[str, str]]:
    """Return the roles that the member may give."""
    return role_choices(may_manage_owners=page.may(Permission.OWNERS_WRITE))


def transfer_targets(page: PageContext, seat: Membership) -> Sequence[Membership]:
    """Return who may take a member's keys."""
    members = selectors.members(page.organization)
    return [one for one in members if one != seat and can(one.role, Permission.API_KEYS_WRITE)]


def may_change(page: PageContext, seat: Membership) -> bool:
    """Tell whether the member may change a seat."""
    is_owners = seat.role == Role.OWNER
    return page.may(Permission.OWNERS_WRITE if is_owners else Permission.MEMBERS_WRITE)


def invitation_rows(page: PageContext, invitation_id: str) -> Invitation:
    """Return an open invitation. Raises ObjectNotFound, NotPermitted."""
    if not page.may(Permission.MEMBERS_WRITE):
        raise NotPermitted("An owner or admin can invite people.")
    return selectors.invitation(page.organization, invitation_id)


def render_team(page: PageContext, *, invite: InviteMemberForm | None = None) -> HttpResponse:
    """Return the page, with the form as it was sent."""
    may_manage, now = page.may(Permission.MEMBERS_WRITE), timezone.now()
    made = keys.key_counts(page.organization)
    context = {
        "seats": [
            MemberRow(
                one, made.get(one.user_id, 0), page.url("member", one.id), one.user == page.user
            )
            for one in selectors.members(page.organization)
        ],
        "offers": [
            InvitationRow(one, one.expires_at <= now)
            for one in (selectors.open_invitations(page.organization) if may_manage else ())
        ],
        "may_manage": may_manage,
        "roles": [(role.label, may) for role, may in ROLES.items()],
        "invite": invite
        or InviteMemberForm(choices=choices(page), initial={"role": Role.DEVELOPER}),
    }
    refused = invite is not None and invite.errors
    return page.render("console/team.html", context, status=400 if refused else 200)


def render_member(
    page: PageContext,
    seat: Membership,
    *,
    role: MemberRoleForm | None = None,
    remove: RemoveMemberForm | None = None,
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
        "role": role or MemberRoleForm(choices=choices(page), initial={"role": seat.role}),
        "remove": remove or RemoveMemberForm(seat=seat, heirs=transfer_targets(page, seat)),
    }
    refused = (role and role.errors) or (remove and remove.errors)
    return page.render("console/member.html", context, status=400 if refused else 200)
