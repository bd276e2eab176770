"""The shrinker, on a simulator that fails for a reason we know."""

from tests.simulation.plan import Deed, Step, make_plan
from tests.simulation.run import Report
from tests.simulation.shrink import shrink

CULPRITS = {("void", 2), ("follow", 1)}


class Pretended:
    """Fails when all culprits are in the plan."""

    def __init__(self):
        self.runs = 0

    def run(self, seed, plan):
        self.runs += 1
        deeds = {(deed.kind, deed.actor) for step in plan for deed in step.deeds}
        failure = "A sentence: and facts" if deeds >= CULPRITS else None
        return Report(seed, plan, failure=failure)


def step(*deeds):
    return Step(1, 0, tuple(Deed(kind, actor, 0, crash_at) for kind, actor, crash_at in deeds))


def test_only_the_culprits_stay_without_their_crashes():
    noise = step(("poll", 0, None), ("ship", 1, 4))
    plan = (
        *(noise,) * 4, step(("void", 2, 3), ("poll", 1, None)), *(noise,) * 3,
        step(("ship", 0, None), ("follow", 1, None)), *(noise,) * 4,
    )  # fmt: skip
    simulator = Pretended()
    shortest = shrink(simulator, simulator.run(0, plan))
    assert shortest.plan == (step(("void", 2, None)), step(("follow", 1, None)))
    assert simulator.runs < 150


def test_a_plan_follows_from_its_seed():
    assert make_plan(5) == make_plan(5)
    assert make_plan(5) != make_plan(6)
