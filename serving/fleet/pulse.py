"""Health is progress: whether an engine with work reads or makes tokens, by its counters."""

from serving.engine.probe import Vitals

COMPILING_PATIENCE = 3
"""How many times longer an engine may make no token while all that waits, waits for grammars."""


class Pulse:
    """Judges one replica from what is observed; all times are monotonic seconds.

    `token_at` is when it was last seen to make a token for anybody.
    """

    def __init__(self, *, stuck_seconds: float, idle_probe_seconds: float, now: float) -> None:
        self.stuck_seconds = stuck_seconds
        self.idle_probe_seconds = idle_probe_seconds
        self._last: Vitals | None = None
        self._progress_at = now
        self._answered_at = now
        self.token_at = now

    def saw(self, vitals: Vitals, now: float) -> None:
        """Take in the engine's counters."""
        self._answered_at = now
        if self._last is None or _moved(self._last, vitals):
            self.token_at = self._progress_at = now
        elif vitals.is_idle:
            self._progress_at = now
        self._last = vitals

    def answered(self, now: float) -> None:
        """Take in an answer of an engine that shows no counters."""
        self._answered_at = self._progress_at = now

    def generated(self, now: float) -> None:
        """Take in that a test generation succeeded."""
        self._answered_at = self._progress_at = self.token_at = now

    def wants_probe(self, now: float) -> bool:
        """Tell whether no token was seen for so long that one should be asked for."""
        has_work = self._last is not None and not self._last.is_idle
        return not has_work and now - self.token_at >= self.idle_probe_seconds

    def trouble(self, now: float) -> str | None:
        """Return what is wrong, None when nothing is."""
        if now - self._answered_at >= self.stuck_seconds:
            return f"no answer for {now - self._answered_at:.0f} s"
        is_compiling = self._last is not None and self._last.is_compiling
        patience = COMPILING_PATIENCE if is_compiling else 1
        if now - self._progress_at >= patience * self.stuck_seconds:
            return f"requests run, but no token was made for {now - self._progress_at:.0f} s"
        return None


def _moved(before: Vitals, after: Vitals) -> bool:
    """Cache usage moves during a long prefill, when no token counter does."""
    return (before.prompt_tokens, before.generation_tokens, before.cache_usage) != (
        after.prompt_tokens,
        after.generation_tokens,
        after.cache_usage,
    )
