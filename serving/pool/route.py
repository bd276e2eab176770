"""The choice of replica: one that knows how the prompt begins, else the least busy.

The one that saw most of it is taken; of equals, and where nobody saw any of it, the one that a hash
of the beginning chooses (rendezvous hashing, by slots), so that gateways which know nothing of each
other choose alike. None is taken for that with more than 1.25 times the mean load: then the next
best is (consistent hashing with bounded loads, Mirrokni et al., SODA '18). Nobody waits for a
replica while another has room.
"""

from collections.abc import Collection, Iterable, Sequence
from math import ceil, log
from typing import Literal, NamedTuple

from xxhash import xxh3_64_intdigest

from serving.pool.prefixes import Blocks
from serving.pool.replica import Replica

LOAD_MAX = 1.25
"""Times the mean: what a replica may be taken up to for what it knows."""

Why = Literal["load", "affinity", "hash", "spill"]
"""Why a replica was chosen: it was the least busy; it saw the prompt's beginning; the hash of that
chose it; or it was the next best, since the one of these two had no room or too much to do."""


class Choice(NamedTuple):
    """A replica, and why."""

    replica: Replica
    why: Why


def choose(
    replicas: Iterable[Replica],
    now: float,
    avoid: Collection[str] = (),
    *,
    width: int = 1,
    blocks: Blocks = (),
) -> Choice | None:
    """Return a usable replica with `width` free slots for a prompt that begins with `blocks`.

    Replicas whose ids are in `avoid` are taken only when no other is usable. Where every ready
    replica is ejected, ejection is ignored: a doubtful answer is better than none.
    """
    ready = [replica for replica in replicas if replica.is_ready]
    usable = [replica for replica in ready if replica.is_usable(now)] or ready
    free = [replica for replica in usable if replica.has_room(width)]
    if avoid:
        free = [each for each in free if each.record.replica_id not in avoid] or free
    if not free:
        return None
    if not blocks or len(usable) == 1:
        return Choice(_least_busy(free), "load")
    return _by_prefix(usable, free, width, blocks)


def _least_busy(replicas: Sequence[Replica]) -> Replica:
    return min(replicas, key=lambda replica: replica.in_flight / replica.share)


def _by_prefix(
    usable: Sequence[Replica], free: Sequence[Replica], width: int, blocks: Blocks
) -> Choice:
    """Return the best of those with room, and whether it is the best of all."""
    mean = (sum(each.in_flight for each in usable) + width) / sum(each.share for each in usable)
    bounded = [each for each in free if _is_bounded(each, width, LOAD_MAX * mean)]
    if not bounded:
        return Choice(_least_busy(free), "spill")
    best, known = _best(usable, blocks)
    if best in bounded:
        return Choice(best, "affinity" if known else "hash")
    return Choice(_best(bounded, blocks)[0], "spill")


def _is_bounded(replica: Replica, width: int, load: float) -> bool:
    """Tell whether a request more leaves it below so many a slot; an idle one is."""
    return not replica.in_flight or replica.in_flight + width <= ceil(load * replica.share)


def _best(replicas: Sequence[Replica], blocks: Blocks) -> tuple[Replica, int]:
    """Return who saw most of a prompt's blocks, and how many; of equals whom the next block's hash
    chooses, which is the same for all turns of a conversation."""
    counts = [replica.seen.count(blocks) for replica in replicas]
    most = max(counts)
    equals = [one for one, count in zip(replicas, counts, strict=True) if count == most]
    if len(equals) == 1:
        return equals[0], most
    block = blocks[min(most, len(blocks) - 1)]
    return max(equals, key=lambda replica: _weight(replica, block)), most


def _weight(replica: Replica, block: int) -> float:
    """Return a number by chance, the same at all gateways, the greatest as often as slots say."""
    hashed = xxh3_64_intdigest(replica.record.replica_id.encode(), block)
    return -replica.record.slots / log((hashed >> 12 | 1) / 2**52)
