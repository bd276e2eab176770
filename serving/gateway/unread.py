"""What other gateways gave replicas to read, and have no first token of yet."""

from collections.abc import Callable, Iterable, Mapping

from serving.pool.replicas import Replica

SILENT_SECONDS = 1.0
"""After which a gateway's word counts no more: it may have ended."""

Unread = Mapping[str, int]
"""Blocks, by replica."""


class UnreadElsewhere:
    """The last word of each gateway, counted at the replicas. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[str, tuple[float, Unread]] = {}

    def note(self, gateway_id: str, unread: Unread, replicas: Mapping[str, Replica]) -> None:
        """A gateway said what it has under way."""
        before = self._of.pop(gateway_id, (0.0, {}))[1]
        if unread:
            self._of[gateway_id] = self._clock(), unread
        self._count({*before, *unread}, replicas)

    def forget_silent(self, replicas: Mapping[str, Replica]) -> None:
        """Leave out gateways of which nothing was heard for a while."""
        heard_since = self._clock() - SILENT_SECONDS
        for gateway_id in [id_ for id_, (at, _) in self._of.items() if at < heard_since]:
            self.note(gateway_id, {}, replicas)

    def _count(self, replica_ids: Iterable[str], replicas: Mapping[str, Replica]) -> None:
        for replica_id in replica_ids:
            if (replica := replicas.get(replica_id)) is not None:
                every = (unread.get(replica_id, 0) for _, unread in self._of.values())
                replica.remote_prefill_backlog = sum(every)
