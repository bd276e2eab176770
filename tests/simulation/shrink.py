"""A failing plan made short: deeds are struck out, then eased, as long as it still fails."""

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.plan import Plan
from tests.simulation.run import Report, Simulator

RUNS_MAX = 150


def shrink(simulator: Simulator, failing: Report) -> Report:
    """Return the report of the shortest plan found that fails as `failing` does.

    A failure is the same when its sentence is: what comes before the first colon.
    """
    shortest, runs = failing, 0
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for plan in _shorter(shortest.plan):
            runs += 1
            if runs > RUNS_MAX:
                return shortest
            report = simulator.run(failing.seed, plan)
            if _sentence(report) == _sentence(failing):
                shortest, is_shorter = report, True
                break
    return shortest


def _sentence(report: Report) -> str | None:
    return None if report.failure is None else report.failure.partition(":")[0]


def _shorter(plan: Plan) -> Iterator[Plan]:
    """Yield plans with less in them, the boldest cuts first."""
    size = len(plan) // 2
    while size:
        for start in range(0, len(plan), size):
            yield plan[:start] + plan[start + size :]
        size //= 2
    for place, step in enumerate(plan):
        before, after = plan[:place], plan[place + 1 :]
        if len(step.deeds) > 1:
            for gone in range(len(step.deeds)):
                left = step.deeds[:gone] + step.deeds[gone + 1 :]
                yield (*before, replace(step, deeds=left), *after)
        for number, deed in enumerate(step.deeds):
            if deed.crash_at is not None or deed.is_unheard or deed.fails_at is not None:
                calm = replace(deed, crash_at=None, is_unheard=False, fails_at=None)
                deeds = (*step.deeds[:number], calm, *step.deeds[number + 1 :])
                yield (*before, replace(step, deeds=deeds), *after)
