"""The choice of replica: the least busy of those that may be given work."""

from collections.abc import Collection, Iterable

from serving.pool.replica import Replica


def choose(
    replicas: Iterable[Replica], now: float, avoid: Collection[str] = (), *, width: int = 1
) -> Replica | None:
    """Return the usable replica with `width` free slots that works on the fewest requests.

    Replicas whose ids are in `avoid` are taken only when no other is usable. Where every ready
    replica is ejected, ejection is ignored: a doubtful answer is better than none.
    """
    ready = [replica for replica in replicas if replica.is_ready]
    usable = [replica for replica in ready if replica.is_usable(now)] or ready
    free = [replica for replica in usable if replica.has_room(width)]
    if len(free) < 2:
        return free[0] if free else None
    return min(free, key=lambda r: (r.record.replica_id in avoid, r.in_flight))
