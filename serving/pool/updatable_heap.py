"""Items in the order of a number that changes, each change in O(log n)."""

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")

STALE_MAX = 64


class UpdatableHeap(Generic[Item]):
    """Knows the item of the least number; of equal ones that which got its number first."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Item]] = []
        self._current: dict[Item, tuple[float, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._current)

    def put(self, item: Item, number: float) -> None:
        """Add an item, or give one that is here another number."""
        self._count += 1
        self._current[item] = number, self._count
        heappush(self._entries, (number, self._count, item))
        if len(self._entries) > 2 * len(self._current) + STALE_MAX:
            self._entries = [(*rank, item) for item, rank in self._current.items()]
            heapify(self._entries)

    def drop(self, item: Item) -> None:
        """Forget an item."""
        self._current.pop(item, None)

    def first(self, but: Collection[Item] = ()) -> Item | None:
        """Return the item of the least number, `but` some; None when there is none."""
        entries, passed, found = self._entries, [], None
        while entries:
            number, count, item = entries[0]
            is_current = self._current.get(item) == (number, count)
            if is_current and item not in but:
                found = item
                break
            entry = heappop(entries)
            if is_current:
                passed.append(entry)
        for entry in passed:
            heappush(entries, entry)
        return found

    def least(self, but: Collection[Item] = ()) -> float | None:
        """Return the least number, `but` of some items; None when there is none."""
        item = self.first(but)
        return None if item is None else self._current[item][0]
