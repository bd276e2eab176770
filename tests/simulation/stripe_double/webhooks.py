"""Signing events as Stripe signs them, written down a second time: the secret keeps the library
under test out of the proof."""

import hashlib
import hmac
import json
import time
from typing import Any


def signed(event: dict[str, Any], secret: str, *, at: float | None = None) -> tuple[bytes, str]:
    """Return an event's body and its Stripe-Signature."""
    body = json.dumps(event, indent=2).encode()
    stamp = int(time.time() if at is None else at)
    mac = hmac.new(secret.encode(), b"%d.%s" % (stamp, body), hashlib.sha256).hexdigest()
    return body, f"t={stamp},v1={mac}"
