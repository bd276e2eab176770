"""A simulated engine's slots, its prefill and its decoding."""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from typing import Protocol

from serving.engine.simulated.request import SimulatedFunction, SimulatedRequest, arguments_of
from serving.engine.simulated.settings import SimulatorSettings
from serving.engine.simulated.tokens import SimulatedPrefixCache, Vocabulary


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """One piece of text per generated token; the end-of-text token's piece is empty.

    Where a function is `called`, the pieces are its arguments.
    """

    pieces: list[str]
    finish_reason: str
    stop_reason: str | None = None
    called: str | None = None


def plan_choice(
    request: SimulatedRequest, choice: int, vocabulary: Vocabulary, mean_tokens: int
) -> AnswerPlan:
    """Return what choice number `choice` says: to its own end, the limit, or a stop string."""
    answer = vocabulary.answer(
        request.prompt, salt=request.seed * 131 + choice, mean_tokens=mean_tokens
    )
    if request.called is not None:
        return _call(
            request.called, [vocabulary.word(answer, index) for index in range(8)], request
        )
    ends_itself = not request.ignore_eos and answer.length < request.max_tokens
    count = answer.length if ends_itself else request.max_tokens
    pieces = [vocabulary.word(answer, index) for index in range(count)]
    if request.stop and (cut := _cut(pieces, request.stop)):
        return cut
    if ends_itself:
        return AnswerPlan([*pieces, ""], "stop")
    return AnswerPlan(pieces, "length")


def _call(function: SimulatedFunction, words: list[str], request: SimulatedRequest) -> AnswerPlan:
    pieces = [*arguments_of(function, words), ""]
    finish_reason = "tool_calls" if len(pieces) <= request.max_tokens else "length"
    return AnswerPlan(pieces[: request.max_tokens], finish_reason, called=function.name)


def _cut(pieces: list[str], stops: tuple[str, ...]) -> AnswerPlan | None:
    text = "".join(pieces)
    found = [(text.find(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return None
    start, stop = min(found)
    kept: list[str] = []
    position = 0
    for piece in pieces:
        kept.append(piece[: max(0, start - position)])
        position += len(piece)
        if position >= start + len(stop):
            break
    return AnswerPlan(kept, "stop", stop)


IDLE_STEP_SECONDS = 0.001
"""The step where only prefill is paced."""


class TokenSink(Protocol):
    """Where a run's tokens go; one that wants no single tokens is told of the end only."""

    @property
    def wants_tokens(self) -> bool: ...

    def begin(self) -> None:
        """Prefill is done: the first token follows."""

    def token(self, choice: int, index: int) -> None:
        """Choice number `choice` has made its token number `index`."""

    def flush(self) -> None:
        """A step is over: what was made may leave."""

    def finish(self) -> None:
        """Every choice has ended."""


class GenerationRun:
    """One request at work; its choices advance together. A stalled run keeps its slots.

    `cached_tokens` is what the answer says of the cache, `hit_tokens` what all choices found.
    """

    def __init__(
        self,
        request: SimulatedRequest,
        plans: list[AnswerPlan],
        *,
        cached_tokens: int,
        hit_tokens: int,
        block_size: int,
    ) -> None:
        self.request = request
        self.plans = plans
        self.cached_tokens = cached_tokens
        self.hit_tokens = hit_tokens
        self.new_cached_tokens = request.prompt_tokens // block_size * block_size - cached_tokens
        self.position = 0
        self.length = max(len(plan.pieces) for plan in plans)
        self.first_token_at = 0.0
        self.is_stalled = False

    @property
    def generated_tokens(self) -> int:
        """Return the tokens made so far, over all choices."""
        return sum(min(self.position, len(plan.pieces)) for plan in self.plans)

    @property
    def kv_tokens(self) -> int:
        """Return what it holds of the KV cache: its choices share the prompt."""
        return self.request.prompt_tokens + self.generated_tokens


class SimulatedEngine:
    """Runs requests in slots. `is_frozen` stops all progress, `is_dead` refuses all work."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self.settings = settings
        self.vocabulary = Vocabulary(settings.seed)
        self.cache = SimulatedPrefixCache(
            block_size=settings.block_size, capacity=settings.cache_blocks
        )
        self.counts: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.running: dict[GenerationRun, TokenSink] = {}
        self.waiting: deque[tuple[GenerationRun, TokenSink]] = deque()
        self.sequences_max = 0
        """The most that it was ever given at once, those included that it made wait."""
        self.is_frozen = False
        self.is_dead = False
        self._prefill_free_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def slots_used(self) -> int:
        """Return the slots that running requests hold, one a choice."""
        return sum(run.request.choices for run in self.running)

    @property
    def kv_tokens(self) -> int:
        """Return what running requests hold of the KV cache."""
        return sum(run.kv_tokens for run in self.running)

    @property
    def kv_cache_usage(self) -> float:
        """Return the used share of the KV cache, or of the prefix cache where that has no bound."""
        size = self.settings.kv_cache_tokens
        return min(1.0, self.kv_tokens / size) if size else self.cache.usage

    def prepare(self, request: SimulatedRequest) -> GenerationRun:
        """Return a run for a request, and count its look-up in the prefix cache."""
        mean = self.settings.output_tokens
        plans = [plan_choice(request, i, self.vocabulary, mean) for i in range(request.choices)]
        cached = [self.cache.use(request.prompt, request.cache_salt) for _ in plans]
        self.counts["prefix_cache_queries"] += request.prompt_tokens * request.choices
        self.counts["prefix_cache_hits"] += sum(cached)
        # As vLLM tells it: a stream names what its first choice found, a whole answer its last.
        told = cached[0] if request.is_stream else cached[-1]
        return GenerationRun(
            request,
            plans,
            cached_tokens=told,
            hit_tokens=sum(cached),
            block_size=self.settings.block_size,
        )

    def submit(self, run: GenerationRun, outlet: TokenSink) -> None:
        """Queue a run; without pacing, and with a free slot, it is over when this returns."""
        self.waiting.append((run, outlet))
        given = self.slots_used + sum(waiter.request.choices for waiter, _ in self.waiting)
        self.sequences_max = max(self.sequences_max, given)
        self._admit()

    def cancel(self, run: GenerationRun) -> None:
        """Abort a run: no further token of it is made."""
        was_known = self.running.pop(run, None) is not None
        for entry in [entry for entry in self.waiting if entry[0] is run]:
            self.waiting.remove(entry)
            was_known = True
        if was_known:
            self.finished["abort"] += run.request.choices
            self._admit()

    def freeze(self, frozen: bool) -> None:
        """Stop all progress, or let it go on."""
        self.is_frozen = frozen
        self._schedule()

    def resume(self, run: GenerationRun) -> None:
        """Let a stalled run go on."""
        run.is_stalled = False
        outlet = self.running.get(run)
        if outlet is not None and not self.settings.is_paced:
            self._advance(run, outlet)
            self._admit()

    def _admit(self) -> None:
        """Start what waits while a slot is free. vLLM schedules each choice by itself; here all of
        a request begin with its first. As in vLLM, none passes one for which the KV cache has no
        room."""
        while self.waiting and self.slots_used < self.settings.slots:
            if not self._has_room_for(self.waiting[0][0]):
                break
            self._start(*self.waiting.popleft())
        self._schedule()

    def _has_room_for(self, run: GenerationRun) -> bool:
        size = self.settings.kv_cache_tokens
        return not size or not self.running or self.kv_tokens + run.kv_tokens <= size

    def _preempt(self) -> None:
        """Put back what began last while more is held than the KV cache has, as vLLM does: it waits
        before all others, and all that it had is computed anew."""
        size = self.settings.kv_cache_tokens
        while size and len(self.running) > 1 and self.kv_tokens > size:
            self.waiting.appendleft(self.running.popitem())
            self.counts["num_preemptions"] += 1

    def _start(self, run: GenerationRun, outlet: TokenSink) -> None:
        self.running[run] = outlet
        if not self.settings.is_paced:
            if not self.is_frozen:
                self._advance(run, outlet)
            return
        now = asyncio.get_running_loop().time()
        rate = self.settings.prefill_tokens_per_second
        seconds = (run.kv_tokens - run.cached_tokens) / rate if rate else 0.0
        self._prefill_free_at = max(now, self._prefill_free_at) + seconds
        run.first_token_at = self._prefill_free_at

    def _schedule(self) -> None:
        if self._timer is None and self.running and not self.is_frozen:
            delay = self.settings.itl_seconds or IDLE_STEP_SECONDS
            self._timer = asyncio.get_running_loop().call_later(delay, self._step)

    def _step(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        if not self.is_frozen:
            for run, outlet in list(self.running.items()):
                is_due = run in self.running and now >= run.first_token_at
                if is_due and not run.is_stalled:
                    self._advance(run, outlet)
            self._preempt()
        self._admit()

    def _advance(self, run: GenerationRun, outlet: TokenSink) -> None:
        """Make one token of each choice, or all of them at once without an ITL."""
        if run.position == 0:
            self.counts["prompt_tokens"] += run.request.prompt_tokens * run.request.choices
            self.counts["prompt_tokens_cached"] += run.hit_tokens
            outlet.begin()
        whole = self.settings.itl_seconds == 0
        if whole and not outlet.wants_tokens:
            self._make_all(run)
        while run in self.running and not run.is_stalled and run.position < run.length:
            self._make_token(run, outlet)
            if not whole:
                break
        outlet.flush()
        if run in self.running and run.position >= run.length:
            self._end(run, outlet)

    def _make_all(self, run: GenerationRun) -> None:
        made = run.generated_tokens
        run.position = run.length
        self.counts["generation_tokens"] += run.generated_tokens - made

    def _make_token(self, run: GenerationRun, outlet: TokenSink) -> None:
        index = run.position
        run.position += 1
        for choice, plan in enumerate(run.plans):
            if index < len(plan.pieces):
                self.counts["generation_tokens"] += 1
                outlet.token(choice, index)

    def _end(self, run: GenerationRun, outlet: TokenSink) -> None:
        del self.running[run]
        for plan in run.plans:
            # To vLLM's counters, as to its core, a call ends like any text.
            self.finished["length" if plan.finish_reason == "length" else "stop"] += 1
        outlet.finish()
