"""What is known of one kind: the last good record of each id, each applied by itself."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

Record = TypeVar("Record", bound=msgspec.Struct)


class Table(Protocol):
    """Takes records in. A snapshot begins, takes or keeps some of them, and sweeps out all else."""

    def take(self, id_: str, record: Any) -> None:
        """Put a record in the place of the last one of this id; None removes it."""

    def begin(self) -> None:
        """From now on whatever is neither taken nor kept is to be swept out."""

    def keep(self, id_: str) -> None:
        """Leave the record of an id, where there is one, as it is."""

    def sweep(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""


class Records(Generic[Record]):
    """A few hundred or thousand records; `changed` hears of each what was and what is now."""

    def __init__(
        self,
        changed: Callable[[Record | None, Record | None], None] = lambda before, after: None,
    ) -> None:
        self._known: dict[str, Record] = {}
        self._changed = changed
        self._taken: set[str] = set()
        self._is_taking_all = False

    def get(self, id_: str) -> Record | None:
        """Return the record of an id."""
        return self._known.get(id_)

    def all(self) -> Collection[Record]:
        """Return every record, as a view of what is known at each moment."""
        return self._known.values()

    def take(self, id_: str, record: Record | None) -> None:
        """Put a record in the place of the last one of this id; None removes it."""
        before = self._known.get(id_)
        if record is None:
            self._known.pop(id_, None)
        else:
            self._known[id_] = record
            self.keep(id_)
        self._changed(before, record)

    def begin(self) -> None:
        """From now on whatever is neither taken nor kept is to be swept out."""
        self._taken, self._is_taking_all = set(), True

    def keep(self, id_: str) -> None:
        """Leave the record of an id, where there is one, as it is."""
        if self._is_taking_all:
            self._taken.add(id_)

    def sweep(self) -> Iterator[None]:
        """Remove the rest, pausing at each step."""
        for id_ in self._known.keys() - self._taken:
            self.take(id_, None)
            yield
        self._taken, self._is_taking_all = set(), False
