"""The choice of replica: the least busy of those that may be given work."""

from collections.abc import Collection, Iterable

from serving.pool.replica import Replica


def choose(replicas: Iterable[Replica], now: float, avoid: Collection[str] = ()) -> Replica | None:
    """Return the usable replica with a free slot that works on the fewest requests.

    Replicas whose ids are in `avoid` are taken only when no other is usable.
    """
    free = [replica for replica in replicas if replica.has_slot and replica.is_usable(now)]
    if not free:
        return None
    return min(free, key=lambda r: (r.record.replica_id in avoid, r.in_flight))
