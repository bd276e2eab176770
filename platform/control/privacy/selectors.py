"""Questions about errands, and about what is held of a person beyond tables that name a user."""

from datetime import datetime

from django.contrib.sessions.models import Session
from django.db.models import Q, QuerySet

from control.errors import ObjectNotFound
from control.mail.models import StoredEmail
from control.mail.services import KIND as MAIL
from control.outbox.models import OutboxMessage
from control.privacy.models import Errand, State
from control.tenants.models import Invitation, OperatorInvitation, User

SHOWN = 10


def errands_of(person: User) -> list[Errand]:
    """Return what was asked of a person's data, the latest first, without the copies."""
    return list(Errand.objects.filter(person=person).defer("copy")[:SHOWN])


def errand(person: User, errand_id: str) -> Errand:
    """Return one of a person's own. Raises ObjectNotFound."""
    found = Errand.objects.filter(person=person, id=errand_id).first()
    if found is None:
        raise ObjectNotFound("There is no such errand.")
    return found


def any_errand(errand_id: str) -> Errand:
    """Return an errand, for operators. Raises ObjectNotFound."""
    found = Errand.objects.filter(id=errand_id).first()
    if found is None:
        raise ObjectNotFound("There is no such errand.")
    return found


def open_errands() -> QuerySet[Errand]:
    """Return what waits, the oldest first."""
    return Errand.objects.filter(state=State.WAITING).defer("copy").order_by("created_at")


def addresses(person: User) -> set[str]:
    """Return every address of a person, in lower case."""
    return {person.email.lower(), *(each.lower() for each in _email_addresses(person))}


def _email_addresses(person: User) -> list[str]:
    return list(person.emailaddress_set.values_list("email", flat=True))  # type: ignore[attr-defined]


def sessions(person: User, now: datetime) -> list[Session]:
    """Return the sessions of a person that are open. All open ones are read: a session names nobody
    outside its sealed data."""
    alive = Session.objects.filter(expire_date__gt=now).iterator()
    return [each for each in alive if each.get_decoded().get("_auth_user_id") == person.id]


def invitations(person: User) -> list[QuerySet[Invitation] | QuerySet[OperatorInvitation]]:
    """Return what was offered to a person's addresses."""
    theirs = Q(email__in=addresses(person))
    return [Invitation.objects.filter(theirs), OperatorInvitation.objects.filter(theirs)]


def mails(person: User) -> QuerySet[OutboxMessage]:
    """Return the mails to a person that wait, or are kept for a while after they left."""
    theirs = Q()
    for each in addresses(person):
        theirs |= Q(payload__to__iexact=each)
    return OutboxMessage.objects.filter(theirs, kind=MAIL)


def letters(person: User) -> QuerySet[StoredEmail]:
    """Return the mails to a person that stayed in the platform's own mailbox."""
    theirs = Q()
    for each in addresses(person):
        theirs |= Q(sent_to__iexact=each)
    return StoredEmail.objects.filter(theirs)
