"""A key's secret: made, replaced while the old one goes on for a while, and ended early."""

from datetime import datetime
from secrets import choice

from django.db import transaction
from django.utils import timezone

from control.actor import Actor
from control.errors import Conflict
from control.feed.services import FeedRef, publish
from control.keys import checks, selectors
from control.keys.digest import PREFIX_CHARACTERS, digest_of, newest_pepper_id
from control.keys.live import peoples_key, record, require_current_seat
from control.keys.models import ApiKey, OldSecret
from control.keys.news import tell_of_new_secret
from control.tenants import selectors as tenants
from control.tenants.permissions import Action
from serving.contract.key import make_secret

OLD_SECRETS_MAX = 3
"""How many replaced secrets of a key may work at once."""
PARTS = ("digest", "pepper_id", "prefix", "last_four")


def give_secret(key: ApiKey) -> str:
    """Set what is kept of a new secret, and return it."""
    secret = make_secret(choice)
    key.digest, key.pepper_id = digest_of(secret), newest_pepper_id()
    key.prefix, key.last_four = secret[:PREFIX_CHARACTERS], secret[-4:]
    return secret


@transaction.atomic
def rotate_key(
    *, actor: Actor, key: ApiKey, last_four: str, old_secret_ends_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Give a key a new secret; return it, told now or never. The one before works until a moment,
    a day from now by default; those replaced earlier until theirs. Who rotates a key knows its
    secret, and so it is theirs from then on: the person's behind the key, where a key rotates one.

    Raises Conflict where `last_four` are not those of the secret to replace: then it was replaced
    already, perhaps by the same wish sent twice.
    """
    organization = tenants.locked_organization(key.organization_id)
    require_current_seat(actor, organization, Action.MAKE_KEYS)
    key = peoples_key(actor, key)
    if key.last_four != last_four:
        raise Conflict(f"The secret that ends with {last_four} was replaced already.")
    now = timezone.now()
    ends_at = checks.old_secret_ends_at(old_secret_ends_at, now)
    OldSecret.objects.filter(key=key, ends_at__lte=now).delete()
    if ends_at > now:
        _keep(key, ends_at)
    before, maker, secret = key.masked, key.created_by, give_secret(key)
    key.created_by_id = actor.person_id or key.created_by_id
    key.save(update_fields=[*PARTS, "created_by"])
    record(
        actor, "key.rotate", key, before=before, after=key.masked,
        old_secret_ends_at=ends_at.isoformat(),
    )  # fmt: skip
    tell_of_new_secret(actor, key, maker)
    publish([FeedRef("api_key", key.id)])
    return key, secret


@transaction.atomic
def end_old_secrets(*, actor: Actor, key: ApiKey) -> ApiKey:
    """End all replaced secrets of a key; gateways refuse them within a second.

    Raises Conflict where none works any more.
    """
    key = peoples_key(actor, key)
    ended = selectors.old_secrets(key, timezone.now())
    if not ended:
        raise Conflict("No old secret of the API key works any more.")
    OldSecret.objects.filter(key=key).delete()
    record(actor, "key.end_old_secrets", key, ended=[secret.masked for secret in ended])
    publish([FeedRef("api_key", key.id)])
    return key


def _keep(key: ApiKey, ends_at: datetime) -> None:
    if OldSecret.objects.filter(key=key).count() >= OLD_SECRETS_MAX:
        raise Conflict(
            f"{OLD_SECRETS_MAX} old secrets of the API key work already: end them first, or wait."
        )
    OldSecret.objects.create(
        key=key,
        made_by_id=key.created_by_id,
        ends_at=ends_at,
        **{part: getattr(key, part) for part in PARTS},
    )
