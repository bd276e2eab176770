"""Emails about API keys. A person who receives a secret in the console is notified, so that they
notice a stolen session. Owners are notified of keys that may manage the organization, and creators
when somebody else rotates or revokes their key. Programs are notified by the webhook
`api_key.created`.
"""

from django.utils import timezone
from django.utils.translation import gettext

from control.accounts.models import User
from control.accounts.notifications import SecurityEmail, notify
from control.api_keys.models import ApiKey
from control.db.models import CredentialState
from control.organizations import selectors as tenants
from control.permissions import Actor, Role


def notify_key_created(actor: Actor, key: ApiKey) -> None:
    """Email the person who created a key, and the owners if it may manage the organization."""
    if not _is_member(actor):
        return
    addresses, access = _recipients(actor, key)
    sentence = gettext("The API key “%(key)s” (%(masked)s) was created in %(organization)s.")
    _notify(
        key, addresses, actor,
        gettext("A new API key"),
        f"{sentence % _names(key)} {access}",
    )  # fmt: skip


def notify_key_rotated(actor: Actor, key: ApiKey, maker: User | None) -> None:
    """Email the recipients of a new key, and the previous creator if another person rotated it."""
    addresses, access = _recipients(actor, key) if _is_member(actor) else (set(), "")
    if maker is not None and maker.pk != actor.user_id:
        addresses = {*addresses, maker.email}
    sentence = gettext("The API key “%(key)s” (%(masked)s) in %(organization)s has a new secret.")
    _notify(
        key, addresses, actor,
        gettext("An API key has a new secret"),
        f"{sentence % _names(key)} {access}".strip(),
    )  # fmt: skip


def notify_key_revoked(actor: Actor, key: ApiKey, state: CredentialState) -> None:
    """Email the creator of a key that somebody else revoked; `state` is what it was before."""
    maker = key.created_by
    if maker is None or maker.pk == actor.user_id:
        return
    sentence = gettext("The API key “%(key)s” (%(masked)s) in %(organization)s stopped working.")
    if state == CredentialState.EXPIRED:
        sentence = gettext(
            "The API key “%(key)s” (%(masked)s) in %(organization)s had expired before. Now it is"
            " revoked and cannot be given a new expiry."
        )
    _notify(
        key, {maker.email}, actor,
        gettext("Your API key was revoked"),
        sentence % _names(key),
    )  # fmt: skip


def _is_member(actor: Actor) -> bool:
    return actor.kind == "user" and not actor.is_operator


def _recipients(actor: Actor, key: ApiKey) -> tuple[set[str], str]:
    """Return the addresses to notify of a new secret, and a sentence on what the key can do."""
    if not key.permissions:
        return {actor.name}, gettext("It can call models.")
    owners = tenants.members(key.organization).filter(role=Role.OWNER)
    addresses = {actor.name, *owners.values_list("user__email", flat=True)}
    return addresses, gettext("It can manage the organization.")


def _names(key: ApiKey) -> dict[str, str]:
    return {"key": key.name, "masked": key.masked, "organization": key.organization.name}


def _notify(key: ApiKey, addresses: set[str], actor: Actor, subject: str, sentence: str) -> None:
    content = SecurityEmail(
        subject,
        sentence,
        gettext(
            "If you did not expect this, review the API keys and revoke those that nobody"
            " recognizes."
        ),
        f"/{key.organization_id}/api-keys",
        gettext("View the API keys"),
    )
    for address in sorted(addresses):
        notify(
            content,
            to=address,
            now=timezone.now(),
            who=actor.name,
            organization_id=key.organization_id,
        )
