"""Seeds in which customers pay through Stripe: what else is done at each step."""

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.simulation.plan import FAILURE_SHARE, POINTS_MAX, Deed, Plan, Step

PAYING_SHARE = 0.4
CALLS = {
    "save_method": 5,
    "use_method": 2,
    "top_up": 9,
    "checkout": 6,
    "set_automatic": 4,
    "top_up_automatically": 8,
    "pay_back": 10,
    "collect": 12,
    "webhooks": 12,
    "inbox": 10,
    "sync": 6,
    "reconcile": 2,
    "at_stripe": 18,
}
CALLS_AFTER = {"charge_invoice": 10}
"""Deeds that come besides once the month has turned."""
OPENING = (
    (1, ("save_method",) * 3),
    (5, ("top_up", "top_up", "checkout")),
    (200, ("collect", "at_stripe", "webhooks")),
)
"""How a seed begins, after so many seconds each: nothing could go back before something came in."""
OTHERS_MAX = 2
"""How many of a step's own deeds are done beside payments."""
MORE_SHARE = 0.85
CRASH_SHARE = 0.2


def is_paying(seed: int) -> bool:
    """Tell whether customers pay through Stripe in a seed."""
    return random.Random(f"paying {seed}").random() < PAYING_SHARE


def make_paying_plan(seed: int, plan: Plan) -> Plan:
    """Return a plan with payments besides."""
    rng = random.Random(f"payments {seed}")
    first, *steps = plan
    turn = next((at for at, step in enumerate(steps) if step.turns), len(steps))
    opening = [Step(seconds, rng.getrandbits(32), _of(rng, kinds)) for seconds, kinds in OPENING]
    paid = [
        _with_payments(rng, step, CALLS if at <= turn else CALLS | CALLS_AFTER)
        for at, step in enumerate(steps)
    ]
    return (first, *opening, *paid)


def _with_payments(rng: random.Random, step: Step, calls: dict[str, int]) -> Step:
    if rng.random() >= MORE_SHARE:
        return step
    kept = step.deeds
    if not step.turns:
        kept = tuple(rng.sample(step.deeds, min(OTHERS_MAX, len(step.deeds))))
    count = rng.choice((1, 2, 3, 3))
    return replace(
        step, deeds=(*kept, *_of(rng, rng.choices([*calls], [*calls.values()], k=count)))
    )


def _of(rng: random.Random, kinds: Sequence[str]) -> tuple[Deed, ...]:
    return tuple(_deed(rng, kind) for kind in kinds)


def _deed(rng: random.Random, kind: str) -> Deed:
    """Return a deed that dies at some point at times, or has a statement fail; nobody hears it."""
    fate, point, salt = rng.random(), rng.randrange(POINTS_MAX), rng.getrandbits(32)
    crash_at = point if fate < CRASH_SHARE else None
    fails_at = point if CRASH_SHARE <= fate < CRASH_SHARE + FAILURE_SHARE else None
    return Deed(kind, 0, salt, crash_at, fails_at=fails_at)
