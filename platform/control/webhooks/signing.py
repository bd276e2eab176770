"""Secrets of webhook endpoints, and their Standard Webhooks signatures."""

import secrets
from base64 import b64encode
from datetime import UTC, datetime

from standardwebhooks import Webhook

from control.encryption import decrypt, encrypt
from control.webhooks.models import WebhookEndpoint, WebhookSecret

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """Return a new secret: `whsec_` and 256 random bits."""
    return PREFIX + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def encrypted(endpoint: WebhookEndpoint, secret: str) -> str:
    """Return the encrypted secret, as stored."""
    return encrypt(secret, purpose=purpose_of(endpoint.id))


def decrypted(endpoint: WebhookEndpoint, secret: WebhookSecret) -> str:
    """Return the secret. Raises DecryptionError if its encryption key is gone."""
    return decrypt(secret.sealed, purpose=purpose_of(endpoint.id))


def signed_headers(
    secrets_: list[str], *, message_id: str, body: str, now: datetime
) -> dict[str, str]:
    """Return the headers that prove the sender and time of a body: one signature per valid
    secret."""
    at = now.astimezone(UTC)
    signatures = [Webhook(secret).sign(message_id, at, body) for secret in secrets_]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def purpose_of(endpoint_id: str) -> str:
    """Return the encryption purpose of an endpoint's secret."""
    return f"webhook secret of {endpoint_id}"
