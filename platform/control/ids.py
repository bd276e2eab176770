"""Random ids of the control plane: a prefix that says what it is, and 24 base62 characters."""

import secrets

from serving.contract.key import BASE62

RANDOM_CHARACTERS = 24


def new_id(prefix: str) -> str:
    """Return a fresh id such as `org_4fK…`: 142 random bits, so that nobody guesses another's."""
    return f"{prefix}_" + "".join(secrets.choice(BASE62) for _ in range(RANDOM_CHARACTERS))
