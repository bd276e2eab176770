"""Kept answers are erased at once where an organization takes no idempotency keys any more."""

from typing import Any

from control.idempotency.services import erase
from control.tenants.models import Organization
from control.tenants.signals import idempotency_keys_refused


def listen() -> None:
    """Erase answers in the transaction that refuses keys."""
    idempotency_keys_refused.connect(_on_refusal, dispatch_uid="control.idempotency.erasing")


def _on_refusal(sender: object, organization: Organization, **_: Any) -> None:
    erase(organization.id)
