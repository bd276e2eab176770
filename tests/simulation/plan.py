"""What a seed makes happen: steps of deeds done at once, between which time passes.

A deed carries its own seed (`salt`), so that a plan with some of its deeds struck out is a plan.
"""

import random
from dataclasses import dataclass, replace

STEPS = 16
GATEWAYS = 3

CALLS = {
    "poll": 36,
    "ship": 30,
    "grant": 7,
    "limit": 8,
    "fine_limit": 8,
    "terms": 2,
    "reverse": 2,
    "pay": 3,
    "adjust": 3,
    "release": 2,
    "follow": 9,
    "post": 3,
    "close": 3,
    "seal": 3,
    "expire": 5,
    "void": 3,
}
"""Deeds that call a service, by how often they come."""
CALLS_AFTER = {"month": 14, "settle": 4, "pay_owed": 8, "take_back": 8, "dispute": 4}
"""Deeds that come besides once the month has turned."""
EVENTS = {"die": 5, "skew": 3, "repeat": 2}
"""Deeds that only change the world around billing."""
EVENT_SHARE = 0.3
LANDING_SHARE = 0.25
TURNING_SHARE = 0.6
"""How often a seed sees the month turn."""
TURNS_BETWEEN = (5, 10)
BUSY_STEPS = 4
"""How many steps are full of requests before a month that is seen to turn does."""
CRASH_SHARE = 0.12
FAILURE_SHARE = 0.06
UNHEARD_SHARE = 0.08
POINTS_MAX = 30
"""Calls that crash do so within their first points."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that somebody does."""

    kind: str
    actor: int
    salt: int
    crash_at: int | None = None
    is_unheard: bool = False
    fails_at: int | None = None

    def __str__(self) -> str:
        crash = "" if self.crash_at is None else f" crash@{self.crash_at}"
        unheard = " unheard" if self.is_unheard else ""
        return f"{self.kind}/{self.actor}{crash}{unheard}"


@dataclass(frozen=True, slots=True)
class Step:
    """Deeds at once, after so many seconds."""

    seconds: int
    salt: int
    deeds: tuple[Deed, ...]
    turns: bool = False
    """Whether time passes to the end of the month, when its last day is closed, instead."""
    lands: bool = False
    """Whether time passes to the next moment at which something begins or ends, instead."""


Plan = tuple[Step, ...]


def make_plan(seed: int, *, calls: dict[str, int] = CALLS) -> Plan:
    """Return what a seed makes happen. The first step gives credit, or nothing could be spent."""
    rng = random.Random(f"plan {seed}")
    first = Step(0, rng.getrandbits(32), tuple(_deed(rng, "grant", plain=True) for _ in range(3)))
    turn = rng.randint(*TURNS_BETWEEN) if rng.random() < TURNING_SHARE else STEPS
    steps = [_step(rng, calls if at < turn else calls | CALLS_AFTER) for at in range(STEPS)]
    if turn < STEPS:
        steps[:BUSY_STEPS] = [_busy(rng) for _ in range(BUSY_STEPS)]
        steps[turn] = _turning(rng, steps[turn])
    return (first, *steps)


def _busy(rng: random.Random) -> Step:
    """Gateways ask and ship, seconds after another."""
    deeds = [_deed(rng, kind) for kind in ("poll", "poll", "poll", "ship")]
    return Step(rng.randint(0, 20), rng.getrandbits(32), tuple(deeds))


def _turning(rng: random.Random, step: Step) -> Step:
    """The month turns, and is closed by several at once beside what else is done."""
    months = [_deed(rng, "month") for _ in range(rng.choice((1, 2, 2)))]
    ship = _deed(rng, "ship")
    return replace(step, turns=True, deeds=(*step.deeds[:2], ship, *months))


def _step(rng: random.Random, calls: dict[str, int]) -> Step:
    count = rng.choice((1, 2, 3, 3, 4))
    deeds = [_deed(rng, kind) for kind in rng.choices([*calls], [*calls.values()], k=count)]
    if rng.random() < EVENT_SHARE:
        (event,) = rng.choices([*EVENTS], [*EVENTS.values()])
        deeds.insert(0, _deed(rng, event, plain=True))
    lands = rng.random() < LANDING_SHARE
    return Step(_pause(rng), rng.getrandbits(32), tuple(deeds), lands=lands)


def _pause(rng: random.Random) -> int:
    """Seconds mostly, minutes often, hours and a day at times."""
    longest = rng.choices((5, 60, 900, 5 * 3600, 30 * 3600), (45, 30, 14, 7, 4))[0]
    return rng.randint(0, longest)


def _deed(rng: random.Random, kind: str, *, plain: bool = False) -> Deed:
    crashes = rng.random() < CRASH_SHARE and not plain
    is_unheard = rng.random() < UNHEARD_SHARE and not plain
    crash_at = rng.randrange(POINTS_MAX) if crashes else None
    fails = rng.random() < FAILURE_SHARE and not plain and not crashes
    fails_at = rng.randrange(POINTS_MAX // 2) if fails else None
    return Deed(kind, rng.randrange(GATEWAYS), rng.getrandbits(32), crash_at, is_unheard, fails_at)
