"""Open files: as many as the system lets us have, and what fits into them."""

import resource

from serving.contract.environment import ConfigError

MOST = 65_536
RESERVED = 128
"""Journal, logs, control, fleet, processes beside."""
LEAST = 256
OF_A_REQUEST = 2
"""Its client's connection, and one to an engine."""


def raise_limit() -> int:
    """Raise the limit of open files as far as we may, and return it. Raises ConfigError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, MOST) if hard != resource.RLIM_INFINITY else MOST
    if limit > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit < LEAST:
        raise ConfigError(f"{limit} files may be open; wanted at least {LEAST} (ulimit -Hn)")
    return limit


def connections_max(limit: int) -> int:
    """Return how many clients may be connected where so many files may be open."""
    return (limit - RESERVED) // OF_A_REQUEST
