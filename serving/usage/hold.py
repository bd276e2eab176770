"""A hold: one request's worst case, set aside on every budget of its chain, settled once."""

from collections.abc import Callable
from itertools import chain

from serving.contract.usage import LeaseCharge
from serving.usage.lease import Part, Parts
from serving.usage.purse import Purse

Taken = tuple[Purse, Parts]
"""The parts of one budget, which together are the worst case, and the purse they are from."""


class Hold:
    """Ends in exactly one `charge` or `void`; a second is an error in our own code."""

    __slots__ = ("_charged", "_clock", "_ended", "_taken", "nanos")

    def __init__(self, nanos: int, taken: tuple[Taken, ...], clock: Callable[[], float]) -> None:
        self.nanos = nanos
        self._taken = taken
        self._clock = clock
        self._charged: list[Part] = []
        self._ended = False

    def parts(self) -> dict[str, int]:
        """Return what was held of which leases."""
        held: dict[str, int] = {}
        for part in chain.from_iterable(parts for _, parts in self._taken):
            held[part.lease.lease_id] = held.get(part.lease.lease_id, 0) + part.nanos
        return held

    def shrink(self, nanos: int) -> None:
        """Give back what is held beyond `nanos`: the worst case, now that more is known."""
        if self._ended or nanos >= self.nanos:
            return
        self.nanos, now = nanos, self._clock()
        self._taken = tuple(
            (purse, purse.shrink(parts, nanos, now)) for purse, parts in self._taken
        )

    def charge(self, nanos: int) -> tuple[LeaseCharge, ...]:
        """Take `nanos` from every budget, give the rest of the hold back, and say whence.

        Each lease touched waits for one more acknowledgement. More than was held is charged too
        (usage is a fact), to the last lease of the budget.
        """
        self._end()
        now = self._clock()
        for purse, parts in self._taken:
            self._charged += purse.settle(parts, nanos, now)
        return tuple(
            LeaseCharge(part.lease.budget_id, part.lease.lease_id, part.nanos)
            for part in self._charged
        )

    def revoke(self) -> None:
        """Undo a charge whose event could not be made durable."""
        for part in self._charged:
            part.lease.revoke(part.nanos)
        self._charged = []

    def void(self) -> None:
        """Give everything back."""
        self._end()
        now = self._clock()
        for purse, parts in self._taken:
            purse.release(parts)
            purse.wake_fitting(now)

    def _end(self) -> None:
        if self._ended:
            raise RuntimeError("a hold ends once")
        self._ended = True
