"""What people are told by mail of API keys: who got a secret in the console hears of it, so that a
stolen session is noticed; owners hear of keys that may manage the organization; a maker hears when
somebody else replaces or ends a key of theirs. Keys that programs make are told by webhook
(`key.created`).
"""

from django.utils import timezone

from control.accounts.models import User
from control.accounts.notifications import SecurityEmail, notify
from control.api_keys.models import ApiKey, Scope
from control.organizations import selectors as tenants
from control.permissions import Actor, Role


def notify_key_created(actor: Actor, key: ApiKey) -> None:
    """Mail who made a key by hand, and the owners where it may manage the organization."""
    if not _is_by_hand(actor):
        return
    addresses, may = _recipients(actor, key)
    words = f"{_called(key)} was made in {key.organization.name}. It may {may}."
    _notify(key, addresses, actor, "A new API key", words)


def notify_key_rotated(actor: Actor, key: ApiKey, maker: User | None) -> None:
    """Mail who gave a key another secret by hand, as of a new key, and whose key it was."""
    addresses, may = _recipients(actor, key) if _is_by_hand(actor) else (set(), "")
    if maker is not None and maker.pk != actor.user_id:
        addresses = {*addresses, maker.email}
    words = f"{_called(key)} of {key.organization.name} has another secret."
    if may:
        words += f" It may {may}."
    _notify(key, addresses, actor, "A new secret of an API key", words)


def notify_key_revoked(actor: Actor, key: ApiKey) -> None:
    """Mail who made a key that somebody else ended."""
    maker = key.created_by
    if maker is None or maker.pk == actor.user_id:
        return
    _notify(
        key, {maker.email}, actor,
        "Your API key was revoked",
        f"{_called(key)} of {key.organization.name} stopped working.",
    )  # fmt: skip


def _is_by_hand(actor: Actor) -> bool:
    return actor.kind == "user" and not actor.is_operator


def _recipients(actor: Actor, key: ApiKey) -> tuple[set[str], str]:
    """Return who hears of a secret that was told to somebody, and what it may do."""
    if Scope.MANAGE not in key.scopes:
        return {actor.name}, "ask models"
    owners = tenants.members(key.organization).filter(role=Role.OWNER)
    return {actor.name, *owners.values_list("user__email", flat=True)}, "manage the organization"


def _called(key: ApiKey) -> str:
    return f"The API key “{key.name}” ({key.masked})"


def _notify(key: ApiKey, addresses: set[str], actor: Actor, subject: str, sentence: str) -> None:
    news = SecurityEmail(
        subject,
        sentence,
        "If you did not expect that, look at the keys and revoke what nobody knows.",
        f"/{key.organization_id}/keys",
        "See the keys",
    )
    for address in sorted(addresses):
        notify(
            news,
            to=address,
            now=timezone.now(),
            who=actor.name,
            organization_id=key.organization_id,
        )
