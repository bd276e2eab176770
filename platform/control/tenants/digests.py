"""What is stored of a secret that an invitation's mail holds."""

import hashlib


def digest(secret: str) -> str:
    """Return what is stored of an invitation's secret, which has 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()
