"""The effects of suspending an organization, and the emails that tell its owners."""

from datetime import datetime

from django.conf import settings
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext, ngettext

from control.mail.services import absolute, send_mail
from control.organizations import selectors
from control.organizations.models import Organization


def suspension_effects(organization: Organization) -> list[str]:
    """Return what follows if an organization is suspended now, a sentence each."""
    now = timezone.now()
    working = Q(revoked_at__isnull=True) & (Q(expires_at__isnull=True) | Q(expires_at__gt=now))
    key_count = organization.keys.filter(working).count()
    member_count = selectors.members(organization).count()
    owners = ", ".join(selectors.owner_addresses(organization.id))
    if owners:
        mail = gettext("An email with the reason goes to its owners: %(owners)s.")
    else:
        mail = gettext("No owner has a verified email address, so nobody is told by email.")
    return [
        ngettext(
            "%(count)d API key is refused within a second, with 403 organization_suspended.",
            "%(count)d API keys are refused within a second, with 403 organization_suspended.",
            key_count,
        )
        % {"count": key_count},
        gettext("Requests under way are finished and charged."),
        ngettext(
            "%(count)d member can still sign in, read and pay, but create no new keys.",
            "%(count)d members can still sign in, read and pay, but create no new keys.",
            member_count,
        )
        % {"count": member_count},
        gettext("Every page of its console shows the reason."),
        mail % {"owners": owners},
        gettext("Nothing is deleted. The keys work again once an operator resumes it."),
    ]


def why_suspended(organization: Organization) -> str:
    """Return why the operator suspended an organization, and whom to ask, for its members."""
    words = []
    if reason := organization.suspended_reason:
        words.append(gettext("Reason: %(reason)s.") % {"reason": reason.rstrip(".")})
    words.append(whom_to_ask())
    return " ".join(words)


def whom_to_ask() -> str:
    """Return a sentence on how customers reach the operator."""
    if contact := settings.CONFIG.support_email:
        return gettext("If you have questions, write to %(contact)s.") % {"contact": contact}
    return gettext("If you have questions, contact the operator of this platform.")


def tell_owners(template: str, organization: Organization, *, reason: str, now: datetime) -> None:
    """Email the owners that their organization is suspended, or works again."""
    send_mail(
        template=template,
        to=selectors.owner_addresses(organization.id),
        context={
            "organization": organization.name,
            "why": reason,
            "support": settings.CONFIG.support_email,
            "url": absolute(f"/{organization.id}"),
        },
        key=f"{template}:{organization.id}:{now.isoformat()}",
        organization_id=organization.id,
        now=now,
    )
