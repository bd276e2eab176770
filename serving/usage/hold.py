"""A hold: one request's worst case, set aside on every budget of its chain, settled once."""

from dataclasses import dataclass

from serving.contract.usage import LeaseCharge
from serving.usage.lease import Lease


@dataclass(frozen=True, slots=True)
class Part:
    """What a hold takes from one lease."""

    lease: Lease
    nanos: int


Parts = tuple[Part, ...]
"""The parts of one budget; together they are the worst case."""


class Hold:
    """Ends in exactly one `charge` or `void`; a second is an error in our own code."""

    __slots__ = ("_budgets", "_charged", "_ended", "nanos")

    def __init__(self, nanos: int, budgets: tuple[Parts, ...]) -> None:
        self.nanos = nanos
        self._budgets = budgets
        self._charged: list[Part] = []
        self._ended = False

    def charge(self, nanos: int) -> tuple[LeaseCharge, ...]:
        """Take `nanos` from every budget, give the rest of the hold back, and say whence.

        Each lease touched waits for one more acknowledgement. More than was held is charged too
        (usage is a fact), to the last lease of the budget.
        """
        self._end()
        self._charged = [part for parts in self._budgets for part in _settle(parts, nanos)]
        return tuple(
            LeaseCharge(part.lease.budget_id, part.lease.lease_id, part.nanos)
            for part in self._charged
        )

    def revoke(self) -> None:
        """Undo a charge whose event could not be made durable."""
        for part in self._charged:
            part.lease.charged_nanos -= part.nanos
            part.lease.unacknowledged -= 1
        self._charged = []

    def void(self) -> None:
        """Give everything back."""
        self._end()
        for parts in self._budgets:
            release(parts)

    def _end(self) -> None:
        if self._ended:
            raise RuntimeError("a hold ends once")
        self._ended = True


def release(parts: Parts) -> None:
    """Give back what the parts of one budget hold."""
    for part in parts:
        part.lease.held_nanos -= part.nanos


def _settle(parts: Parts, nanos: int) -> list[Part]:
    release(parts)
    charged: list[Part] = []
    for part in parts:
        taken = nanos if part is parts[-1] else min(nanos, part.nanos)
        nanos -= taken
        if taken:
            part.lease.charged_nanos += taken
            part.lease.unacknowledged += 1
            charged.append(Part(part.lease, taken))
    return charged
