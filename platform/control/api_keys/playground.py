"""Keys of the console's playground; their secrets are derived on each call and never stored."""

import hashlib
import hmac
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from control.accounts.models import User
from control.api_keys import selectors
from control.api_keys.models import (
    PREFIX_CHARACTERS,
    ApiKey,
    ApiKeyKind,
    digest_of,
    newest_pepper_id,
)
from control.api_keys.services import record_key_created
from control.feed.services import FeedRef, publish
from control.organizations import selectors as tenants
from control.organizations.models import Project
from control.permissions import Actor, Permission, require
from serving.contract.api_key import BASE62, make_secret

LIFETIME = timedelta(hours=12)
RENEWAL = timedelta(hours=1)
"""A key with less time left than this is renewed."""


@transaction.atomic
def playground_secret(*, user: User, project: Project) -> str:
    """Return the secret of a user's playground key in a project; create or renew it if needed.

    A new key reaches the gateways within a second, so call this when the playground opens. Raises
    ObjectNotFound for a non-member, NotPermitted for a role that may not create keys, Conflict if
    the organization is not active or the project is archived.
    """
    actor = Actor.for_member(tenants.membership(user, project.organization_id))
    require(actor, project.organization_id, Permission.API_KEYS_WRITE)
    now = timezone.now()
    if secret := _lasting_secret(selectors.open_playground_key(project, user), now):
        return secret
    project = tenants.active_project(project)
    key = selectors.playground_key(project, user)
    if secret := _lasting_secret(key, now):
        return secret
    is_new = key is None
    key = key or _unsaved_key(user, project)
    secret = _set_secret(key, now + LIFETIME)
    if is_new:
        record_key_created(actor, key)
    publish([FeedRef("api_key", key.id)])
    return secret


def derive(key_id: str, expires_at: datetime) -> str:
    """Return the secret of a playground key that ends at `expires_at`."""
    characters = _characters(f"{key_id} {expires_at.isoformat()}")
    return make_secret(lambda alphabet: next(characters))


def _lasting_secret(key: ApiKey | None, now: datetime) -> str | None:
    """Return the secret of a key that has more than `RENEWAL` left, else None."""
    if key is None or key.expires_at is None or key.expires_at - now <= RENEWAL:
        return None
    return derive(key.id, key.expires_at)


def _unsaved_key(user: User, project: Project) -> ApiKey:
    return ApiKey(
        organization=project.organization,
        project=project,
        name="Playground",
        kind=ApiKeyKind.PLAYGROUND,
        created_by=user,
    )


def _set_secret(key: ApiKey, expires_at: datetime) -> str:
    secret = derive(key.id, expires_at)
    key.expires_at = expires_at
    key.digest = digest_of(secret)
    key.pepper_id = newest_pepper_id()
    key.prefix = secret[:PREFIX_CHARACTERS]
    key.last_four = secret[-4:]
    key.save()
    return secret


def _characters(label: str) -> Iterator[str]:
    """Yield characters that only a holder of the playground secret can predict."""
    for number in count():
        seed = f"{label} {number}".encode()
        pepper = settings.CONFIG.playground_secret.encode()
        for byte in hmac.new(pepper, seed, hashlib.sha256).digest():
            if byte < 4 * len(BASE62):  # The remaining values would bias the choice.
                yield BASE62[byte % len(BASE62)]
