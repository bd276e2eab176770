"""Random ids of the control plane: a prefix that says what it is, and 24 base62 characters."""

import secrets
import string

from serving.contract.key import BASE62

RANDOM_CHARACTERS = 24


def new_id(prefix: str) -> str:
    """Return a fresh id such as `org_fK4…`: 142 random bits, so that nobody guesses another's.

    They begin with a letter: the admin would take `_3F` in an address for a quoted `?`, so an id
    that somebody puts into one by hand might not be found.
    """
    first = secrets.choice(string.ascii_letters)
    rest = "".join(secrets.choice(BASE62) for _ in range(RANDOM_CHARACTERS - 1))
    return f"{prefix}_{first}{rest}"
