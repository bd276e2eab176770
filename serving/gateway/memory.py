"""Memory that this process may have, and how much of it requests and answers may hold."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from serving.gateway.bodies import BYTES_MAX
from serving.gateway.idempotency.copy import ALL_COPIES_BYTES_MAX
from serving.gateway.outgoing import ALL_PENDING_BYTES_MAX

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


class MemoryBounds(NamedTuple):
    """Bytes that a gateway holds at most."""

    bodies: int
    """Of requests."""
    pending: int
    """Of answers that slow clients have not taken."""
    copies: int
    """Of answers that are recorded under idempotency keys."""


def bounds(limit_bytes: int) -> MemoryBounds:
    """Return the bounds of a process that may have so many bytes: half of them together, and no
    more than the usual bounds, which 2 GiB allow."""
    return MemoryBounds(
        min(BYTES_MAX, limit_bytes // 4),
        min(ALL_PENDING_BYTES_MAX, limit_bytes // 8),
        min(ALL_COPIES_BYTES_MAX, limit_bytes // 8),
    )


def limit_bytes(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return how much memory this process may have: the machine's, or less where one of its cgroups
    (version 2 or 1) has a lower limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(cgroups, own)])


def _limits(cgroups: Path, own: Path) -> Iterator[int]:
    """Yield the limits of our cgroups and of those above them. In a container the path that the
    kernel tells may lie outside of what is mounted: then the mount itself is our cgroup."""
    for file in _limit_files(cgroups, own):
        try:
            yield int(file.read_text())
        except (OSError, ValueError):
            continue  # There is no such cgroup here, or its limit is `max`.


def _limit_files(cgroups: Path, own: Path) -> Iterator[Path]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        cgroup = mount / path.lstrip("/")
        for folder in (cgroup, *cgroup.parents):
            if folder.is_relative_to(mount):
                yield folder / name
