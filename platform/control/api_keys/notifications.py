"""Emails about API keys. A person who receives a secret in the console is notified, so that they
notice a stolen session. Owners are notified of keys that may manage the organization, and creators
when somebody else rotates or revokes their key. Programs are notified by the webhook
`api_key.created`.
"""

from django.utils import timezone

from control.accounts.models import User
from control.accounts.notifications import SecurityEmail, notify
from control.api_keys.models import ApiKey
from control.organizations import selectors as tenants
from control.permissions import Actor, Role


def notify_key_created(actor: Actor, key: ApiKey) -> None:
    """Email the person who created a key, and the owners if it may manage the organization."""
    if not _is_member(actor):
        return
    addresses, may = _recipients(actor, key)
    sentence = f"{_label(key)} was made in {key.organization.name}. It may {may}."
    _notify(key, addresses, actor, "A new API key", sentence)


def notify_key_rotated(actor: Actor, key: ApiKey, maker: User | None) -> None:
    """Email the recipients of a new key, and the previous creator if another person rotated it."""
    addresses, may = _recipients(actor, key) if _is_member(actor) else (set(), "")
    if maker is not None and maker.pk != actor.user_id:
        addresses = {*addresses, maker.email}
    sentence = f"{_label(key)} of {key.organization.name} has another secret."
    if may:
        sentence += f" It may {may}."
    _notify(key, addresses, actor, "A new secret of an API key", sentence)


def notify_key_revoked(actor: Actor, key: ApiKey) -> None:
    """Email the creator of a key that somebody else revoked."""
    maker = key.created_by
    if maker is None or maker.pk == actor.user_id:
        return
    _notify(
        key, {maker.email}, actor,
        "Your API key was revoked",
        f"{_label(key)} of {key.organization.name} stopped working.",
    )  # fmt: skip


def _is_member(actor: Actor) -> bool:
    return actor.kind == "user" and not actor.is_operator


def _recipients(actor: Actor, key: ApiKey) -> tuple[set[str], str]:
    """Return the addresses to notify of a new secret, and what the key may do."""
    if not key.permissions:
        return {actor.name}, "ask models"
    owners = tenants.members(key.organization).filter(role=Role.OWNER)
    return {actor.name, *owners.values_list("user__email", flat=True)}, "manage the organization"


def _label(key: ApiKey) -> str:
    return f"The API key “{key.name}” ({key.masked})"


def _notify(key: ApiKey, addresses: set[str], actor: Actor, subject: str, sentence: str) -> None:
    content = SecurityEmail(
        subject,
        sentence,
        "If you did not expect that, look at the keys and revoke what nobody knows.",
        f"/{key.organization_id}/api-keys",
        "See the keys",
    )
    for address in sorted(addresses):
        notify(
            content,
            to=address,
            now=timezone.now(),
            who=actor.name,
            organization_id=key.organization_id,
        )
