"""What replicas showed of themselves: which of them are put out, which requests may be why, and
after how long without a token a second one is asked."""

import asyncio
from collections.abc import Callable, Mapping

from serving.engine.events import TokenUsage
from serving.pool.hedging import Hedging
from serving.pool.outliers import Outliers
from serving.pool.replica import Replica
from serving.pool.suspicion import Fingerprint, Suspicions
from serving.pool.ticket import Ticket


class Health:
    """Of one pool. `clock` is monotonic seconds; `on_sound` hears when a replica may be used again.

    Of replicas that are gone nothing is remembered.
    """

    def __init__(self, clock: Callable[[], float], on_sound: Callable[[], None]) -> None:
        self.hedging = Hedging(clock)
        self._suspicions = Suspicions(clock)
        self._outliers = Outliers(clock)
        self._replicas: Mapping[str, Replica] = {}
        self._clock = clock
        self._on_sound = on_sound

    def set_replicas(self, replicas: Mapping[str, Replica]) -> None:
        """Take in which replicas there are; what was known of those that are no longer ready is
        forgotten."""
        for replica_id in self._replicas:
            if replica_id not in replicas or not replicas[replica_id].is_ready:
                self._suspicions.forget_replica(replica_id)
                self.hedging.forget(replica_id)
                self._outliers.forget(replica_id)
        self._replicas = replicas

    def quarantined_seconds(self, ticket: Ticket) -> float:
        """Return for how much longer such requests are refused, as they broke engines; 0 when they
        are not."""
        return self._suspicions.quarantined_seconds(ticket.fingerprint)

    def late_seconds(self, replica: Replica, ticket: Ticket) -> float | None:
        """Return after how long without a token a second replica should be asked too; None: never,
        as for what may have broken an engine."""
        if ticket.tier != "priority" or ticket.width > 1:
            return None
        if self._suspicions.is_suspected(ticket.fingerprint):
            return None
        return self.hedging.seconds_for(replica.record.replica_id, ticket.input_tokens)

    def note_first(self, replica: Replica, ticket: Ticket, seconds: float) -> None:
        """A first token took so long, or longer."""
        if self._has(replica):
            replica_id = replica.record.replica_id
            self.hedging.times.note(replica_id, ticket.input_tokens, seconds, self._clock())

    def note_times(
        self, replica: Replica, tokens: TokenUsage, first: float, each: float | None
    ) -> None:
        """A first token took so long, and each of those after it; put the replica out, or take it
        back, if that says so."""
        if not self._has(replica):
            return
        was_out = replica.slow_until > 0.0
        self._outliers.note(replica.record.replica_id, tokens, first, each)
        self._put_out(self._outliers.judge(replica, self._replicas.values()))
        if was_out and not replica.slow_until:
            self._on_sound()

    def note_success(self, replica: Replica) -> None:
        """A replica made a token: it works."""
        if replica.in_a_row:
            was_on_trial = replica.is_on_trial
            replica.note_success()
            if was_on_trial:
                self._on_sound()

    def suspect(self, replica: Replica, fingerprint: Fingerprint) -> None:
        """Such a request may have broken a replica."""
        self._suspicions.note_incident(fingerprint, replica.record.replica_id)

    def note_incident(self, replica: Replica, ticket: Ticket, *, is_at_fault: bool) -> None:
        """A replica broke under a request, and is or may be at fault."""
        now = self._clock()
        self._put_out(replica.note_incident(ticket.organization_id, now, is_at_fault=is_at_fault))

    def convict(self, replica: Replica, fingerprint: Fingerprint) -> None:
        """What broke a replica was served by another: it was the replica's fault."""
        self._suspicions.clear(fingerprint)
        if self._has(replica) and replica.in_a_row:
            replica.is_at_fault = True
            self._put_out(replica.eject(self._clock()))

    def _has(self, replica: Replica) -> bool:
        return self._replicas.get(replica.record.replica_id) is replica

    def _put_out(self, pause: float) -> None:
        """One is out for so many seconds, if any."""
        if pause:
            asyncio.get_running_loop().call_later(pause, self._on_sound)
