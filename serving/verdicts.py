"""Verdicts on grammars that are worth keeping, the least recently wanted of which go first."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from serving.contract.grammar import GrammarVerdict

VERDICTS_MAX = 10_000
LASTING = frozenset({"good", "refused", "too_complex"})

Key = TypeVar("Key", bound=Hashable)


class Verdicts(Generic[Key]):
    """Each is kept for `seconds`; without that for as long as there is room."""

    def __init__(
        self, seconds: float = float("inf"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, GrammarVerdict]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Key) -> GrammarVerdict | None:
        """Return what is known, if anything is."""
        until, verdict = self._kept.get(key, (0.0, None))
        if verdict is None or self._clock() >= until:
            return None
        self._kept.move_to_end(key)
        return verdict

    def last(self, key: Key) -> GrammarVerdict | None:
        """Return what was known, however long ago."""
        return self._kept.get(key, (0.0, None))[1]

    def keep(self, key: Key, verdict: GrammarVerdict) -> None:
        """Remember one that would be the same if it were asked for again."""
        if verdict.verdict not in LASTING:
            return
        self._kept[key] = self._clock() + self._seconds, verdict
        self._kept.move_to_end(key)
        if len(self._kept) > VERDICTS_MAX:
            self._kept.popitem(last=False)
