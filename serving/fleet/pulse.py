"""Health is progress: whether an engine with work reads or makes tokens, by its counters.

One that makes none and uses processors is at work too: it compiles a kernel or a grammar.
"""

from serving.engine.probe import EngineHealth

COMPILING_PATIENCE = 3
"""How many times longer an engine may make no token while all that waits, waits for grammars."""
WORKING_PATIENCE = 6
"""The same while it uses processors: a first use was seen to compile for 24 s. Not for ever, since
an engine may spin."""
WORKING_CORES = 0.5
"""From what share of a core on an engine counts as working."""


class Pulse:
    """Judges one replica from what is observed; all times are monotonic seconds.

    `token_at` is when it was last seen to make a token for anybody.
    """

    def __init__(self, *, stuck_seconds: float, idle_probe_seconds: float, now: float) -> None:
        self.stuck_seconds = stuck_seconds
        self.idle_probe_seconds = idle_probe_seconds
        self._last: EngineHealth | None = None
        self._progress_at = now
        self._answered_at = now
        self._cpu_seconds = self._cpu_seconds_then = 0.0
        """Of processors, now and at the last progress."""
        self.token_at = now

    def used(self, cpu_seconds: float) -> None:
        """Take in what the engine has used of processors so far."""
        self._cpu_seconds = cpu_seconds

    def saw(self, vitals: EngineHealth, now: float) -> None:
        """Take in the engine's counters."""
        self._answered_at = now
        if self._last is None or _moved(self._last, vitals):
            self.token_at = now
            self._progressed(now)
        elif vitals.is_idle:
            self._progressed(now)
        self._last = vitals

    def answered(self, now: float) -> None:
        """Take in an answer of an engine that shows no counters."""
        self._answered_at = now
        self._progressed(now)

    def generated(self, now: float) -> None:
        """Take in that a test generation succeeded."""
        self._answered_at = self.token_at = now
        self._progressed(now)

    def wants_probe(self, now: float) -> bool:
        """Tell whether no token was seen for so long that one should be asked for."""
        has_work = self._last is not None and not self._last.is_idle
        return not has_work and now - self.token_at >= self.idle_probe_seconds

    def trouble(self, now: float) -> str | None:
        """Return what is wrong, None when nothing is."""
        is_working = self._works(self._cpu_seconds - self._cpu_seconds_then, now, self._progress_at)
        patience = WORKING_PATIENCE if is_working else 1
        if now - self._answered_at >= patience * self.stuck_seconds:
            return f"no answer for {now - self._answered_at:.0f} s"
        if self._last is not None and self._last.is_compiling:
            patience = max(patience, COMPILING_PATIENCE)
        if now - self._progress_at >= patience * self.stuck_seconds:
            return f"requests run, but no token was made for {now - self._progress_at:.0f} s"
        return None

    def excuses(self, probed_at: float, cpu_seconds: float, now: float) -> bool:
        """Tell whether an engine that left a probe unanswered works on something else: it used so
        much of processors meanwhile."""
        limit = self.idle_probe_seconds + WORKING_PATIENCE * self.stuck_seconds
        return now - self.token_at < limit and self._works(cpu_seconds, now, probed_at)

    def _progressed(self, now: float) -> None:
        self._progress_at = now
        self._cpu_seconds_then = self._cpu_seconds

    @staticmethod
    def _works(cpu_seconds: float, now: float, since: float) -> bool:
        return cpu_seconds > 0 and cpu_seconds >= WORKING_CORES * (now - since)


def _moved(before: EngineHealth, after: EngineHealth) -> bool:
    """Cache usage moves during a long prefill, when no token counter does."""
    return (before.prompt_tokens, before.generation_tokens, before.cache_usage) != (
        after.prompt_tokens,
        after.generation_tokens,
        after.cache_usage,
    )
