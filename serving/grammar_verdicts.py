"""Verdicts on grammars that are worth keeping. If there are too many, the organization with most
gives up the one that it wanted least recently."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from serving.contract.grammar import GrammarVerdict

VERDICTS_MAX = 10_000
LASTING = frozenset({"good", "refused", "too_complex"})

Key = TypeVar("Key", bound=tuple[Any, ...])


class GrammarVerdicts(Generic[Key]):
    """Each is kept for `seconds`; without that for as long as there is room. Keys begin with the
    organization's id."""

    def __init__(
        self, seconds: float = float("inf"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[str, OrderedDict[Key, tuple[float, GrammarVerdict]]] = {}
        """By organization, the least recently wanted first."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, key: Key) -> GrammarVerdict | None:
        """Return what is known, if anything is."""
        own = self._kept.get(key[0])
        if own is None or key not in own:
            return None
        until, verdict = own[key]
        if self._clock() >= until:
            return None
        own.move_to_end(key)
        return verdict

    def last(self, key: Key) -> GrammarVerdict | None:
        """Return what was known, however long ago."""
        own = self._kept.get(key[0])
        return own[key][1] if own is not None and key in own else None

    def keep(self, key: Key, verdict: GrammarVerdict) -> None:
        """Remember one that would be the same if it were asked for again."""
        if verdict.verdict not in LASTING:
            return
        own = self._kept.setdefault(key[0], OrderedDict())
        self._count += key not in own
        own[key] = self._clock() + self._seconds, verdict
        own.move_to_end(key)
        if self._count > VERDICTS_MAX:
            self._forget_one()

    def _forget_one(self) -> None:
        organization_id, most = max(self._kept.items(), key=lambda item: len(item[1]))
        most.popitem(last=False)
        self._count -= 1
        if not most:
            del self._kept[organization_id]
