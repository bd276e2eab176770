"""Members and invitations: list, invite, change roles, remove."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from control.accounts.models import EMAIL_MAX
from control.api_keys import selectors as keys
from control.db.models import InvitationState
from control.errors import NotPermitted
from control.forms import VersionedForm
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
from web.console.forms import apply_or_form_error, save_edit, status_of

ROLES = {
    Role.OWNER: _("everything, including the organization's name and its owners"),
    Role.ADMIN: _("everything except the organization's name and its owners"),
    Role.DEVELOPER: _("create API keys and see usage; no access to billing"),
    Role.BILLING: _("see and pay invoices, set limits; no API keys"),
    Role.VIEWER: _("see usage; no API keys, no access to billing"),
}
"""Descriptions of the roles."""


def role_choices(*, may_manage_owners: bool) -> list[tuple[str, str]]:
    """Return the roles that a member may assign, with their descriptions."""
    return [
        (role.value, f"{role.label}: {description}")
        for role, description in ROLES.items()
        if may_manage_owners or role != Role.OWNER
    ]


class MemberRoleForm(forms.Form):
    """The role of a member."""

    role = forms.ChoiceField(label=_("Role"))

    def __init__(self, *args: Any, choices: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["role"] = forms.ChoiceField(label=_("Role"), choices=choices)


class MemberRoleChangeForm(MemberRoleForm, VersionedForm):
    """The role of an existing member."""


class InviteMemberForm(MemberRoleForm):
    """An invitation by email."""

    email = forms.EmailField(
        label=_("Email address"),
        max_length=EMAIL_MAX,
        widget=forms.EmailInput(attrs={"autocomplete": "off", "placeholder": "ada@example.com"}),
    )
    field_order = ("email", "role")


class RemoveMemberForm(forms.Form):
    """The member's email address, typed to confirm, and the transfer target of their keys."""

    transfer_keys_to = forms.ChoiceField(label=_("Their API keys"), required=False)
    confirmation = forms.CharField(label="", widget=forms.TextInput(attrs={"autocomplete": "off"}))

    def __init__(
        self, *args: Any, seat: Membership, heirs: Sequence[Membership], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.seat = seat
        words = gettext("Transfer to %(email)s")
        targets = ((each.id, words % {"email": each.user.email}) for each in heirs)
        choices = [("", gettext("Revoke within a second")), *targets]
        self.fields["transfer_keys_to"] = forms.ChoiceField(
            label=_("Their API keys"),
            choices=choices,
            required=False,
            help_text=_(
                "Management API keys are revoked if the new holder's role may not create them."
            ),
        )
        label = gettext("Type %(email)s to confirm") % {"email": seat.user.email}
        self.fields["confirmation"].label = label
        if not heirs:
            del self.fields["transfer_keys_to"]

    def clean_confirmation(self) -> str:
        """Return the address. Raises ValidationError for any other."""
        typed = str(self.cleaned_data["confirmation"]).strip().lower()
        if typed != self.seat.user.email:
            words = gettext("That is not %(email)s. Nothing was changed.")
            raise forms.ValidationError(words % {"email": self.seat.user.email})
        return typed


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member, the number of active API keys that they created, and the URL of their page."""

    membership: Membership
    key_count: int
    url: str
    is_self: bool


@dataclass(frozen=True, slots=True)
class InvitationRow:
    """An invitation and its state."""

    invitation: Invitation
    state: InvitationState


@console_page("team")
def team(page: PageContext) -> HttpResponse:
    """List the members, and the invitations for those who may manage them."""
    return render_team(page)


@require_POST
@console_page("team")
def team_invite(page: PageContext) -> HttpResponse:
    """Invite a person by email."""
    form = InviteMemberForm(page.request.POST, choices=choices(page))
    if form.is_valid() and apply_or_form_error(
        form,
        lambda: invite_member(
            actor=page.actor, organization=page.organization, **form.cleaned_data
        ),
    ):
        words = gettext("An invitation is on its way to %(email)s.")
        messages.success(page.request, words % {"email": form.cleaned_data["email"]})
        return redirect(page.url("team"))
    return render_team(page, invite=form)


@require_POST
@console_page("team")
def invitation_renew(page: PageContext, invitation_id: str) -> HttpResponse:
    """Send an invitation again."""
    found = invitation_rows(page, invitation_id)
    resend_invitation(actor=page.actor, invitation=found)
    words = gettext("A new invitation is on its way to %(email)s.")
    messages.success(page.request, words % {"email": found.email})
    return redirect(page.url("team"))


@require_POST
@console_page("team")
def invitation_withdraw(page: PageContext, invitation_id: str) -> HttpResponse:
    """Revoke an invitation."""
    found = invitation_rows(page, invitation_id)
    revoke_invitation(actor=page.actor, invitation=found)
    words = gettext("The invitation to %(email)s is withdrawn.")
    messages.success(page.request, words % {"email": found.email})
    return redirect(page.url("team"))


@console_page("team")
def member(page: PageContext, member_id: str) -> HttpResponse:
    """Show a member, with the forms for the role and the removal."""
    return render_member(page, selectors.member(page.organization, member_id))


@require_POST
@console_page("team")
def member_role(page: PageContext, member_id: str) -> HttpResponse:
    """Change a member's role."""
    membership = selectors.member(page.organization, member_id)
    form = MemberRoleChangeForm(page.request.POST, choices=choices(page))
    if save_edit(
        form,
        page.organization.id,
        lambda: role_form(page, selectors.member(page.organization, member_id)),
        lambda: change_role(
            actor=page.actor, membership=membership, role=form.cleaned_data["role"]
        ),
    ):
        words = gettext("The role of %(email)s is now %(role)s.")
        role = Role(form.cleaned_data["role"]).label
        messages.success(page.request, words % {"email": membership.user.email, "role": role})
        return redirect(page.url("team"))
    return render_member(page, membership, role=form)


@require_POST
@console_page("team")
def member_remove(page: PageContext, member_id: str) -> HttpResponse:
    """Remove a member, or leave the organization."""
    membership = selectors.member(page.organization, member_id)
    form = RemoveMemberForm(
        page.request.POST, seat=membership, heirs=transfer_targets(page, membership)
    )
    if not form.is_valid() or not apply_or_form_error(form, lambda: remove(page, membership, form)):
        return render_member(page, membership, remove=form)
    if membership.user_id == page.user.id:
        words = gettext("You left %(organization)s.")
        messages.success(page.request, words % {"organization": page.organization.name})
        return redirect("console:home")
    words = gettext("%(email)s is no longer a member.")
    messages.success(page.request, words % {"email": membership.user.email})
    return redirect(page.url("team"))


def remove(page: PageContext, membership: Membership, form: RemoveMemberForm) -> None:
    """Remove a member, and transfer their keys if the form names a target."""
    keys_to = form.cleaned_data.get("transfer_keys_to")
    target = selectors.member(page.organization, keys_to) if keys_to else None
    remove_member(actor=page.actor, membership=membership, heir=target)


def choices(page: PageContext) -> list[tuple[str, str]]:
    """Return the roles that the signed-in member may assign."""
    return role_choices(may_manage_owners=page.may(Permission.OWNERS_WRITE))


def transfer_targets(page: PageContext, membership: Membership) -> Sequence[Membership]:
    """Return the members to whom a member's keys may be transferred."""
    return [
        each
        for each in selectors.members(page.organization)
        if each != membership and can(each.role, Permission.API_KEYS_WRITE)
    ]


def may_change(page: PageContext, membership: Membership) -> bool:
    """Return whether the signed-in member may change a membership."""
    is_owners = membership.role == Role.OWNER
    return page.may(Permission.OWNERS_WRITE if is_owners else Permission.MEMBERS_WRITE)


def invitation_rows(page: PageContext, invitation_id: str) -> Invitation:
    """Return an open invitation. Raises ObjectNotFound, NotPermitted."""
    if not page.may(Permission.MEMBERS_WRITE):
        raise NotPermitted(gettext("Only owners and admins can invite people."))
    return selectors.invitation(page.organization, invitation_id)


def render_team(page: PageContext, *, invite: InviteMemberForm | None = None) -> HttpResponse:
    """Return the page, with the form as it was submitted."""
    may_manage, now = page.may(Permission.MEMBERS_WRITE), timezone.now()
    key_counts = keys.active_key_counts(page.organization, now)
    context = {
        "seats": [
            MemberRow(
                membership=each,
                key_count=key_counts.get(each.user_id, 0),
                url=page.url("member", each.id),
                is_self=each.user == page.user,
            )
            for each in selectors.members(page.organization)
        ],
        "offers": [
            InvitationRow(each, each.state(now))
            for each in (selectors.open_invitations(page.organization) if may_manage else ())
        ],
        "may_manage": may_manage,
        "roles": [(role.label, description) for role, description in ROLES.items()],
        "invite": invite
        or InviteMemberForm(choices=choices(page), initial={"role": Role.DEVELOPER}),
    }
    return page.render("console/team.html", context, status_of(invite))


def role_form(page: PageContext, membership: Membership) -> MemberRoleChangeForm:
    """Return the form with a member's present role."""
    return MemberRoleChangeForm(choices=choices(page), initial={"role": membership.role})


def render_member(
    page: PageContext,
    membership: Membership,
    *,
    role: MemberRoleChangeForm | None = None,
    remove: RemoveMemberForm | None = None,
) -> HttpResponse:
    """Return the page of a member, with the forms as they were submitted."""
    is_self = membership.user_id == page.user.id
    counts = keys.active_key_counts(page.organization, timezone.now())
    context = {
        "seat": membership,
        "may": ROLES[Role(membership.role)],
        "key_count": counts.get(membership.user_id, 0),
        "is_self": is_self,
        "may_change": may_change(page, membership),
        "may_remove": is_self or may_change(page, membership),
        "role": role or role_form(page, membership),
        "remove": remove
        or RemoveMemberForm(seat=membership, heirs=transfer_targets(page, membership)),
    }
    return page.render("console/member.html", context, status_of(role, remove))
