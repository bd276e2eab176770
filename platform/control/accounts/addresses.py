"""The holders of email addresses over time: one that a person gives up may become another's."""

from allauth.account.models import EmailAddress
from django.db.models import Max, Model, Q, QuerySet
from django.db.models.signals import post_delete

from control.accounts.models import FormerAddress, User


def listen() -> None:
    """Keep each verified address that is deleted, by its owner or by an identity provider."""
    post_delete.connect(_keep, EmailAddress, dispatch_uid="control.accounts.addresses")


def _keep(
    sender: object, instance: EmailAddress, origin: Model | QuerySet[Model], **_: object
) -> None:
    is_with_its_user = getattr(origin, "model", type(origin)) is not EmailAddress
    if instance.verified and not is_with_its_user:
        FormerAddress.objects.create(user_id=instance.user_id, email=instance.email.lower())


def sent_to(person: User, address: str, time: str) -> Q:
    """Return the filter of rows that were sent to a person, by the lookups of a row's address and
    time: to an address that they proved or signed up with, while they held it."""
    emails = EmailAddress.objects.filter(user=person, verified=True).values_list("email", flat=True)
    present = {person.email, *(each.lower() for each in emails)}
    held = [(email, None) for email in sorted(present)]
    former = FormerAddress.objects.filter(user=person).values_list("email", "until")
    is_theirs = Q(pk__in=[])
    for email, until in (*held, *former):
        others = FormerAddress.objects.filter(email=email).exclude(user=person)
        others = others.filter(until__lte=until) if until else others
        since = others.aggregate(since=Max("until"))["since"]
        piece = Q(**{f"{address}__iexact": email})
        piece &= Q(**{f"{time}__gt": since}) if since else Q()
        is_theirs |= piece & (Q(**{f"{time}__lte": until}) if until else Q())
    return is_theirs
