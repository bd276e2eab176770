"""The choice of replica: where a prompt is soonest read, for what is known of its beginning.

A replica has to read the blocks that it never saw, after those of prompts that it was given and has
not answered yet. None is taken for what it knows with far more than the mean load: answers would
come slower there (consistent hashing with bounded loads, Mirrokni et al., SODA '18, bounds the load
likewise). Nobody waits for a replica while another has room.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil, log, sqrt
from typing import Literal, NamedTuple

from xxhash import xxh3_64_intdigest

from serving.contract.slot_shares import KvDemand
from serving.pool.kv_cache import KvNeed
from serving.pool.prefix_history import PromptPrefix
from serving.pool.replicas import Replica

MISS_WEIGHT = 2
"""A block that is read anew takes its time, and the place of another one in the cache."""
LOAD_MAX = 1.25
"""Times the mean load: what a replica may be taken up to for what it knows,"""
LOAD_SLACK = 0.25
"""and so much of its slots more; of a part of them by the root, as few vary more than many do."""

Why = Literal["load", "affinity", "spill"]
"""Why a replica was chosen: none with room knew anything, and it had least to do; it knew how the
prompt begins; or another knew more, and had no room or too much to do."""


class RouteDecision(NamedTuple):
    """A replica, why, and how many blocks of the prompt it has to read."""

    replica: Replica
    why: Why
    prefill_backlog: int = 0


def choose(
    replicas: Iterable[Replica],
    now: float,
    excluded: Collection[str] = (),
    *,
    sequences: int = 1,
    prefix: PromptPrefix | None = None,
    need: KvNeed | None = None,
) -> RouteDecision | None:
    """Return a usable replica with a free slot for a prompt that begins with a `prefix`, with
    `sequences` of them where there is one; without, one where the share may be exceeded. Its KV
    cache has room for the `need`, if that is known.

    Replicas whose ids are in `excluded` are taken only when no other is usable. Where every ready
    replica is ejected, ejection is ignored: a doubtful answer is better than none.
    """
    usable = _usable(replicas, now, excluded)
    free = [each for each in usable if each.has_room]
    if sequences > 1:
        enough = [each for each in free if each.free >= sequences]
        free = enough or [each for each in free if each.may_exceed]
    if need is not None:
        free = [each for each in free if each.has_kv_room(need, now)]
    if not free:
        return None
    if prefix is None or not prefix.blocks or len(usable) == 1:
        return RouteDecision(min(free, key=_load), "load")
    return _soonest(usable, free, sequences, prefix)


class KvReservation:
    """Where room is kept in a KV cache, for the first request in the order of turns that has none.

    It is kept on the replica that is nearest to having room, or where a permit was asked for. It
    stays the nearest, since nothing large begins there meanwhile.
    """

    def __init__(self) -> None:
        self.replica: Replica | None = None
        self.need: KvNeed | None = None
        """What the request takes."""

    @property
    def tokens(self) -> int:
        """How many tokens it takes; 0 where none waits."""
        return 0 if self.need is None else max(1, self.need.tokens)

    def clear(self) -> None:
        """Keep no room any more."""
        if self.replica is not None:
            self.replica.kv_passing_max = None
        self.replica = self.need = None

    def reserve(
        self, replicas: Iterable[Replica], now: float, excluded: Collection[str], need: KvNeed
    ) -> bool:
        """Tell whether a request waits for room, and keep it for the first that does."""
        usable = _usable(replicas, now, excluded)
        full = [each for each in usable if not each.has_kv_room(need, now)]
        if full and self.replica is None:
            self.replica, self.need = max(full, key=_kv_nearness), need
            self.replica.reserve_kv_room(need)
        return bool(full)

    def demands(
        self, replicas: Mapping[str, Replica], now: float, need: KvNeed | None
    ) -> dict[str, KvDemand | None]:
        """Return what the fleet is told of each KV cache. `need` is that of the request whose turn
        is next: it may wait for a slot where it has a permit already."""
        need, place = self.need or need, self.replica
        for each in replicas.values():
            if need is not None and each.kv.permit and each.has_kv_room(need, now):
                place = each
        return {
            id_: each.kv_demand(need if each is place else None) for id_, each in replicas.items()
        }


def has_other(replicas: Iterable[Replica], now: float, excluded: Collection[str]) -> bool:
    """Tell whether a usable replica with slots is there that is none of those to avoid."""
    usable = (each for each in replicas if each.is_usable(now) and each.share)
    return any(each.record.replica_id not in excluded for each in usable)


def _usable(replicas: Iterable[Replica], now: float, excluded: Collection[str]) -> list[Replica]:
    replicas = list(replicas)
    usable = [each for each in replicas if each.is_usable(now)]
    usable = usable or [each for each in replicas if each.is_ready]
    if excluded:
        others = [each for each in usable if each.record.replica_id not in excluded]
        usable = others if any(each.share for each in others) else usable
    return usable


def _kv_nearness(replica: Replica) -> tuple[bool, bool, int]:
    """Return whether nobody else has the permit, it was asked for, and how many tokens more have
    room."""
    kv = replica.kv
    is_free = not (kv.is_taken or kv.permit_used)
    return is_free, kv.permit_above is not None, replica.kv_tokens_max - kv.tokens


def _load(replica: Replica) -> tuple[float, float]:
    """Return how busy one is: the part of its slots that is taken, and of equal ones how full its
    engine says that it is."""
    return replica.in_flight / replica.share, replica.engine_load


def slots_max(replica: Replica, mean: float) -> int:
    """Return up to how many slots a replica may be taken for what it knows, at a mean load of all:
    the part of their slots that is taken."""
    share = replica.share
    return ceil(LOAD_MAX * mean * share + LOAD_SLACK * sqrt(share * replica.record.slots))


def _soonest(
    usable: Sequence[Replica], free: Sequence[Replica], sequences: int, prefix: PromptPrefix
) -> RouteDecision:
    """Return where a prompt is soonest read of those with room that have not too much to do; where
    all have, the least busy."""
    length, first = len(prefix.blocks), prefix.blocks[0]
    known = {each: each.prefix_history.count(prefix) for each in usable}
    delays = {
        each: MISS_WEIGHT * (length - known[each])
        + each.prefill_backlog
        + each.remote_prefill_backlog
        for each in free
    }
    mean = (sum([each.in_flight for each in usable]) + sequences) / sum(
        [one.share for one in usable]
    )
    taken = _first(delays, first)
    if taken.in_flight + sequences > slots_max(taken, mean):
        bounded = [each for each in free if each.in_flight + sequences <= slots_max(each, mean)]
        delays = {each: delays[each] for each in bounded}
        taken = _first(delays, first) if delays else min(free, key=_load)
    count = known[taken]
    if count < max(known.values()):
        return RouteDecision(taken, "spill", length - count)
    return RouteDecision(taken, "affinity" if count else "load", length - count)


def _first(delays: Mapping[Replica, int], block: int) -> Replica:
    """Return who has the least delay; of equals the least busy, and of these by chance."""
    least = min(delays.values())
    equals = [each for each, delay in delays.items() if delay == least]
    if len(equals) == 1:
        return equals[0]
    return min(equals, key=lambda each: (_load(each), -_weight(each, block)))


def _weight(replica: Replica, block: int) -> float:
    """Return a number by chance, the same for a block each time, the greatest as often as slots
    say (rendezvous hashing): idle replicas are filled alike."""
    hashed = xxh3_64_intdigest(replica.record.replica_id.encode(), block)
    return -replica.record.slots / log((hashed >> 12 | 1) / 2**52)
