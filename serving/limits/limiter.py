"""May this request go on, by all rates that its caller is held to? Asked twice: before its body is
read, by what is known here, and once more with what it will take."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.contract.limits import Measure
from serving.limits.ask import Ask, Excess, Taking, Verdict, excess_of
from serving.limits.checks import Check, Plan
from serving.limits.counts import Counts
from serving.limits.expected import Expected, input_tokens
from serving.limits.gcra import SLACK
from serving.limits.line import Line
from serving.limits.shared_clock import SharedClock
from serving.limits.standing import Standing, standing, standings_of
from serving.limits.window import Window


class RateExceeded(Exception):
    """A request would go beyond a limit; `standings` is how all of its limits stand."""

    def __init__(self, excess: Excess, standings: Sequence[Standing]) -> None:
        super().__init__(excess.check.name)
        self.excess = excess
        self.standings = standings


@dataclass(frozen=True, slots=True)
class Size:
    """What a request brings and may take at most: of input its bytes, of output its tokens."""

    prompt_bytes: int
    output_tokens_max: int


NOTHING_MADE = Size(0, 0)


class Reservation:
    """What a request took of its limits ahead: settled or voided once; more changes nothing."""

    __slots__ = ("_ask", "_key_id", "_limiter", "standings")

    def __init__(
        self, limiter: "Limiter", key_id: str | None, ask: Ask, standings: Sequence[Standing]
    ) -> None:
        self.standings = standings
        self._limiter = limiter
        self._key_id = key_id
        self._ask: Ask | None = ask

    def settle(self, *, input_tokens: int, output_tokens: int) -> None:
        """The request's work has ended and took so many tokens, of input what was not cached."""
        ask, self._ask = self._ask, None
        if ask is not None:
            if self._key_id is not None:
                self._limiter.learn(self._key_id, output_tokens)
            self._limiter.settle(ask, input_tokens, output_tokens)

    def keep(self) -> None:
        """The request's work has ended, and nobody knows what it took: what was expected counts."""
        ask, self._ask = self._ask, None
        if ask is not None:
            self._limiter.line.leave(ask.places)

    def void(self) -> None:
        """The request came to nothing, if it was not settled: it counts as one, and no more."""
        ask, self._ask = self._ask, None
        if ask is not None:
            self._limiter.settle(ask, 0, 0)


class Limiter:
    """Holds callers to their rates. `share` is how many gateways live; refusals are counted in
    `refused`, by whose limit it was and of what."""

    def __init__(
        self,
        window: Window,
        share: Callable[[], int],
        refused: Counter[tuple[str, str]],
        clock: SharedClock | None = None,
    ) -> None:
        self._refused = refused
        self._counts = Counts()
        self._clock = clock or SharedClock()
        self._share = share
        self._expected = Expected()
        self.line = Line(window, self._counts, self._clock, share)

    @property
    def remark(self) -> str | None:
        """What an operator should know: why limits are not exact."""
        if self.line.is_open:
            return None
        share = self._share()
        return f"rate limits are held by each gateway's part (1 of {share}): {self.line.why_away}"

    def check_early(self, plan: Plan) -> None:
        """Refuse at once who has no request left, as far as is known here.

        Requests are never given back, so that what was known a while ago is no less true now.
        Raises RateExceeded.
        """
        now, share = self._clock.now(), self._share_now()
        for check in plan.early:
            if self._counts.lateness(check, now, share) > SLACK:
                known = self._counts.full_at[check.name]
                ask = Ask((Taking(check, 1),), ())
                self._refuse(ask, Verdict(False, now, (known,), (), share))

    def count(self, plan: Plan) -> None:
        """Take a request of what is checked early, if there is one left, and wait for nobody."""
        if plan.early:
            self.line.ask(Ask(tuple(Taking(check, 1) for check in plan.early), ()))

    def known(self, plan: Plan) -> Sequence[Standing]:
        """Return how a caller's limits by the minute stand, as far as is known here."""
        now, full_at = self._clock.now(), self._counts.full_at
        return tuple(
            standing(check, max(full_at.get(check.name, now) - now, 0.0))
            for check in plan.base
            if check.measure != "concurrent"
        )

    async def reserve(
        self, plan: Plan, key_id: str, model_id: str, size: Size
    ) -> Reservation | None:
        """Take one request, the tokens expected of it and a place among those that run, or nothing.

        Return None where nothing limits requests to the model. Raises RateExceeded.
        """
        checks = plan.checks(model_id)
        if not checks:
            return None
        ask = self._ask(checks, key_id, size)
        if not (ask.takings or ask.places):
            return None
        verdict = await self.line.judge(ask)
        if not verdict.is_admitted:
            self._refuse(ask, verdict)
        learner = key_id if size.output_tokens_max else None
        return Reservation(self, learner, ask, standings_of(ask, verdict))

    def learn(self, key_id: str, output_tokens: int) -> None:
        """Expect of a key what it took of late."""
        self._expected.note(key_id, output_tokens)

    def settle(self, ask: Ask, input_tokens: int, output_tokens: int) -> None:
        """Put what a request took in the place of what it had asked for."""
        taken: dict[Measure, int] = {"input_tokens": input_tokens, "output_tokens": output_tokens}
        for taking in ask.takings:
            more = taken.get(taking.check.measure, taking.amount) - taking.amount
            if more:
                self.line.settle(Taking(taking.check, more))
        self.line.leave(ask.places)

    def _ask(self, checks: Sequence[Check], key_id: str, size: Size) -> Ask:
        amounts: dict[Measure, int] = {
            "requests": 1,
            "input_tokens": input_tokens(size.prompt_bytes) if size.prompt_bytes else 0,
            "output_tokens": self._expected.output_tokens(key_id, size.output_tokens_max),
        }
        takings = (Taking(one, amounts[one.measure]) for one in checks if one.measure in amounts)
        return Ask(
            tuple(taking for taking in takings if taking.amount),
            tuple(check for check in checks if check.measure == "concurrent"),
        )

    def _share_now(self) -> int:
        return 1 if self.line.is_open else self._share()

    def _refuse(self, ask: Ask, verdict: Verdict) -> None:
        excess = excess_of(ask, verdict)
        self._refused[excess.check.owner, excess.check.measure] += 1
        raise RateExceeded(excess, standings_of(ask, verdict))
