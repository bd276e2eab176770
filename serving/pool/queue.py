"""Waiting for a slot: bounded, and fair by turns among organizations."""

import asyncio
from collections import OrderedDict, deque


class FairQueue:
    """Waiters in order of arrival within an organization; organizations take turns."""

    def __init__(self, length_max: int) -> None:
        self.length_max = length_max
        self._length = 0
        self._turns: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __len__(self) -> int:
        return self._length

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return self._length >= self.length_max

    def join(self, organization_id: str) -> asyncio.Future[None]:
        """Stand in line; the future is done when it is this waiter's turn to look for a slot."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.setdefault(organization_id, deque()).append(turn)
        self._length += 1
        return turn

    def leave(self, organization_id: str, turn: asyncio.Future[None]) -> None:
        """Step out of line before it was one's turn; harmless afterwards."""
        line = self._turns.get(organization_id)
        if line is not None and turn in line:
            line.remove(turn)
            self._length -= 1
            if not line:
                del self._turns[organization_id]

    def call_next(self) -> bool:
        """Give the turn to the next organization's first waiter; False when nobody waits."""
        while self._turns:
            organization_id, line = self._turns.popitem(last=False)
            turn = line.popleft()
            self._length -= 1
            if line:
                self._turns[organization_id] = line
            if not turn.done():
                turn.set_result(None)
                return True
        return False
