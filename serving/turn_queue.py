"""A queue of what batches have no room for: tenants take turns, so that the part of one in the next
batch does not depend on how much others have waiting."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

Item = TypeVar("Item")


class TurnQueue(Generic[Item]):
    """`tenant_of` says whose an item is; None: the process's own, which goes before all others.

    The items of each tenant keep their order. All of it takes O(1) for an item. `count` is how many
    wait.
    """

    def __init__(self, tenant_of: Callable[[Item], str | None]) -> None:
        self.count = 0
        self._tenant_of = tenant_of
        self._waiting: OrderedDict[str | None, deque[Item]] = OrderedDict()
        """By tenant, whoever's turn comes next first."""

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._waiting.values())

    def put(self, items: Iterable[Item]) -> None:
        """Add items behind the others of their tenants."""
        for item in items:
            self._items_of(item).append(item)

    def put_back(self, items: Sequence[Item]) -> None:
        """Add items, in the order in which they were taken, before the others of their tenants."""
        for item in reversed(items):
            self._items_of(item).appendleft(item)

    def take(self, most: int) -> list[Item]:
        """Return all of the process's own items, and of tenants' so many at most, one in each
        turn."""
        taken, waiting = list(self._waiting.pop(None, ())), self._waiting
        for _ in range(min(most, self.count - len(taken))):
            tenant_id, items = waiting.popitem(last=False)
            taken.append(items.popleft())
            if items:
                waiting[tenant_id] = items
        self.count -= len(taken)
        return taken

    def _items_of(self, item: Item) -> deque[Item]:
        self.count += 1
        tenant_id = self._tenant_of(item)
        items = self._waiting.get(tenant_id)
        if items is None:
            items = self._waiting[tenant_id] = deque()
        return items
