"""Rate limits of one gateway: reserve what a request is expected to take, settle what it took, or
void it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.contract.limits import Measure
from serving.limits.backend import LimitBackend
from serving.limits.gcra import (
    SLACK,
    LimitAmount,
    LimitDecision,
    LimitRequest,
    LimitStatus,
    LimitViolation,
    LocalCounters,
    status_of,
    statuses_of,
    violation_of,
)
from serving.limits.plans import RateLimit, RateLimitPlan
from serving.limits.redis_script import CounterStore, SharedClock

FIRST_OUTPUT_TOKENS = 256
"""Of a key that was not seen yet."""
WEIGHT = 0.2
"""Of the latest request in a key's mean."""
BYTES_PER_TOKEN = 4
KEYS_MAX = 65_536


class OutputEstimator:
    """The recent mean of output by key."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def output_tokens(self, key_id: str, at_most: int) -> int:
        """Return how many tokens a request will make, of so many at most."""
        return min(max(round(self._means.get(key_id, FIRST_OUTPUT_TOKENS)), 1), at_most)

    def record(self, key_id: str, output_tokens: int) -> None:
        """Learn what a request made."""
        mean = self._means.get(key_id)
        if mean is None and len(self._means) >= KEYS_MAX:
            self._means.clear()
        came = float(output_tokens)
        self._means[key_id] = came if mean is None else mean + WEIGHT * (came - mean)


def input_tokens(prompt_bytes: int) -> int:
    """Return how many tokens a prompt will have."""
    return max(prompt_bytes // BYTES_PER_TOKEN, 1)


class RateLimitExceeded(Exception):
    """A request would go beyond a limit; `statuses` are those of all its limits."""

    def __init__(self, violation: LimitViolation, statuses: Sequence[LimitStatus]) -> None:
        super().__init__(violation.check.name)
        self.violation = violation
        self.statuses = statuses


@dataclass(frozen=True, slots=True)
class RequestSize:
    """What a request brings and may take at most: of input its bytes, of output its tokens."""

    prompt_bytes: int
    output_tokens_max: int


NOTHING_MADE = RequestSize(0, 0)


class RateReservation:
    """What a request took of its limits ahead: settled or voided once; more changes nothing."""

    __slots__ = ("_ask", "_key_id", "_limiter", "statuses")

    def __init__(
        self,
        limiter: "RateLimiter",
        key_id: str | None,
        ask: LimitRequest,
        statuses: Sequence[LimitStatus],
    ) -> None:
        self.statuses = statuses
        self._limiter = limiter
        self._key_id = key_id
        self._ask: LimitRequest | None = ask

    def settle(self, *, input_tokens: int, output_tokens: int) -> None:
        """The request's work has ended and took so many tokens, of input what was not cached."""
        ask, self._ask = self._ask, None
        if ask is not None:
            if self._key_id is not None:
                self._limiter.learn(self._key_id, output_tokens)
            self._limiter.settle(ask, input_tokens, output_tokens)

    def settle_as_estimated(self) -> None:
        """The request's work has ended, and nobody knows what it took: what was expected counts."""
        ask, self._ask = self._ask, None
        if ask is not None:
            self._limiter.backend.release(ask.concurrent)

    def void(self) -> None:
        """The request came to nothing, if it was not settled: it counts as one, and no more."""
        ask, self._ask = self._ask, None
        if ask is not None:
            self._limiter.settle(ask, 0, 0)


class RateLimiter:
    """Holds callers to their rates. `share` is how many gateways live; refusals are counted in
    `refused`, by whose limit it was and of what."""

    def __init__(
        self,
        window: CounterStore,
        share: Callable[[], int],
        refused: Counter[tuple[str, str]],
        clock: SharedClock | None = None,
    ) -> None:
        self._refused = refused
        self._counts = LocalCounters()
        self._clock = clock or SharedClock()
        self._share = share
        self._estimator = OutputEstimator()
        self.backend = LimitBackend(window, self._counts, self._clock, share)

    @property
    def warning(self) -> str | None:
        """What an operator should know: why limits are not exact."""
        if self.backend.is_open:
            return None
        share = self._share()
        return (
            f"rate limits are held by each gateway's part (1 of {share}): {self.backend.why_away}"
        )

    def check_early(self, plan: RateLimitPlan) -> None:
        """Refuse at once who has no request left, as far as is known here.

        Requests are never given back, so that what was known a while ago is no less true now.
        Raises RateLimitExceeded.
        """
        now, share = self._clock.now(), self._share_now()
        for check in plan.early:
            if self._counts.lateness(check, now, share) > SLACK:
                known = self._counts.full_at[check.name]
                ask = LimitRequest(plan.tenant_id, (LimitAmount(check, 1),), ())
                self._refuse(ask, LimitDecision(False, now, (known,), (), share))

    def count(self, plan: RateLimitPlan) -> None:
        """Take a request of what is checked early, if there is one left, and wait for nobody."""
        if plan.early:
            amounts = tuple(LimitAmount(check, 1) for check in plan.early)
            self.backend.submit(LimitRequest(plan.tenant_id, amounts, ()))

    def known_statuses(self, plan: RateLimitPlan) -> Sequence[LimitStatus]:
        """Return how a caller's limits by the minute stand, as far as is known here."""
        now, full_at = self._clock.now(), self._counts.full_at
        return tuple(
            status_of(check, max(full_at.get(check.name, now) - now, 0.0))
            for check in plan.base
            if check.measure != "concurrent"
        )

    async def reserve(
        self, plan: RateLimitPlan, key_id: str, model_id: str, size: RequestSize
    ) -> RateReservation | None:
        """Take one request, the tokens expected of it and a place among those that run, or nothing.

        Return None where nothing limits requests to the model. Raises RateLimitExceeded.
        """
        checks = plan.checks(model_id)
        if not checks:
            return None
        ask = self._ask(plan.tenant_id, checks, key_id, size)
        if not (ask.amounts or ask.concurrent):
            return None
        verdict = await self.backend.decide(ask)
        if not verdict.is_admitted:
            self._refuse(ask, verdict)
        learner = key_id if size.output_tokens_max else None
        return RateReservation(self, learner, ask, statuses_of(ask, verdict))

    def learn(self, key_id: str, output_tokens: int) -> None:
        """Expect of a key what it took of late."""
        self._estimator.record(key_id, output_tokens)

    def settle(self, ask: LimitRequest, input_tokens: int, output_tokens: int) -> None:
        """Put what a request took in the place of what it had asked for."""
        taken: dict[Measure, int] = {"input_tokens": input_tokens, "output_tokens": output_tokens}
        for taking in ask.amounts:
            more = taken.get(taking.check.measure, taking.amount) - taking.amount
            if more:
                self.backend.settle(LimitAmount(taking.check, more))
        self.backend.release(ask.concurrent)

    def _ask(
        self, tenant_id: str, checks: Sequence[RateLimit], key_id: str, size: RequestSize
    ) -> LimitRequest:
        amounts: dict[Measure, int] = {
            "requests": 1,
            "input_tokens": input_tokens(size.prompt_bytes) if size.prompt_bytes else 0,
            "output_tokens": self._estimator.output_tokens(key_id, size.output_tokens_max),
        }
        takings = (
            LimitAmount(one, amounts[one.measure]) for one in checks if one.measure in amounts
        )
        return LimitRequest(
            tenant_id,
            tuple(taking for taking in takings if taking.amount),
            tuple(check for check in checks if check.measure == "concurrent"),
        )

    def _share_now(self) -> int:
        return 1 if self.backend.is_open else self._share()

    def _refuse(self, ask: LimitRequest, verdict: LimitDecision) -> None:
        excess = violation_of(ask, verdict)
        self._refused[excess.check.owner, excess.check.measure] += 1
        raise RateLimitExceeded(excess, statuses_of(ask, verdict))
