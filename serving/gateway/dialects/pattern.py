"""Regular expressions from clients: how large one is once its repeats are written out.

A few characters of nested repeats make a grammar of millions of states, on which an engine's
compiler stands still. The size is counted in one pass, without compiling anything.
"""

import re
from warnings import catch_warnings

CHARACTERS_MAX = 1_000
COUNT_MAX = 4_096
SIZE_MAX = 2_000
"""xgrammar 0.2.8 takes half a second for it, and four times as long for twice as much."""
WIDE = 3
"""What a dot, a negated class or one beyond ASCII counts for: they are automata of bytes."""
GROUPS_MAX = 32
"""How deep groups may nest."""
WIDE_CLASSES = ("\\W", "\\D", "\\S", "\\u", "\\U", "\\x")
_REPEAT = re.compile(r"\{(\d{1,5})?(,)?(\d{1,5})?\}")


class PatternError(Exception):
    """What is wrong with a pattern, to follow the words "a pattern"."""


def expanded_size(pattern: str) -> int:
    """Return the pattern's size in characters and classes, with repeats written out."""
    if len(pattern) > CHARACTERS_MAX:
        raise PatternError(f"is longer than {CHARACTERS_MAX} characters")
    size = _Size(pattern).count()
    if size > SIZE_MAX:
        raise PatternError(f"repeats so often that it is larger than {SIZE_MAX} characters")
    try:
        with catch_warnings(action="ignore"):  # of what another Python may read otherwise
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise PatternError("is not a regular expression") from None
    return size


class _Size:
    """One pass over a pattern. `_open` are the sizes of the groups that are open, `_last` the
    size of what a repeat would repeat."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._open = [0]
        self._last = 0

    def count(self) -> int:
        """Return the size. Raises PatternError."""
        while self._at < len(self._pattern):
            self._step()
            if max(self._open[-1], self._last) > SIZE_MAX:
                return SIZE_MAX + 1
        if len(self._open) != 1:
            raise PatternError("leaves a group open")
        return self._open[0] + self._last

    def _step(self) -> None:
        letter = self._pattern[self._at]
        if letter == "(":
            self._settle()
            self._open.append(0)
            if len(self._open) > GROUPS_MAX:
                raise PatternError(f"nests more than {GROUPS_MAX} groups")
        elif letter == ")":
            self._close()
        elif letter == "[":
            self._class()
        elif letter == "{" and (match := _REPEAT.match(self._pattern, self._at)):
            self._repeat(match)
            return
        elif letter not in "*+?|":
            self._settle()
            is_wide = letter == "." or letter > "\x7f" or self._starts_with(WIDE_CLASSES)
            self._last = WIDE if is_wide else 1
            self._at += letter == "\\"
        self._at += 1

    def _settle(self) -> None:
        """Count what no repeat followed."""
        self._open[-1] += self._last
        self._last = 0

    def _close(self) -> None:
        self._settle()
        if len(self._open) == 1:
            raise PatternError("closes a group that is not open")
        self._last = max(1, self._open.pop())

    def _class(self) -> None:
        """Skip a class of characters: it counts as one."""
        self._settle()
        end = self._at + 1
        while end < len(self._pattern) and (self._pattern[end] != "]" or end == self._at + 1):
            end += 2 if self._pattern[end] == "\\" else 1
        letters = self._pattern[self._at + 1 : end]
        is_wide = letters.startswith("^") or not letters.isascii() or "\\" in letters
        self._at = end
        self._last = WIDE if is_wide else 1

    def _starts_with(self, marks: tuple[str, ...]) -> bool:
        return self._pattern.startswith(marks, self._at)

    def _repeat(self, match: re.Match[str]) -> None:
        counts = [int(count) for count in match.group(1, 3) if count is not None]
        if any(count > COUNT_MAX for count in counts):
            raise PatternError(f"repeats more than {COUNT_MAX} times")
        self._last *= max(counts, default=1) or 1
        self._at = match.end()
