"""Platforms that tests share. The tests of one run on one worker, one after another: it starts
once a run, and ends after the last of them, since an idle platform takes memory and CPU too."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from infra.local.config import DEMO, NO_EMBEDDER
from tests.fixtures.platforms import Platforms
from tests.fixtures.second_gateway import SecondGateway, beside
from tests.fixtures.stack import QUICK_RESTARTS, STILL_ENGINES, Stack, running
from tests.fixtures.traces import Traces, receiving

SHARED = ("stack", "simulated_stack", "two_gateways")
"""The fixtures of the platforms that tests share; other platforms are their module's own."""
PLATFORMS = pytest.StashKey[Platforms]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the platforms where hooks find them."""
    config.stash[PLATFORMS] = Platforms()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group these tests by platform, after all others; those of its second engine wait last. A
    platform of one test comes first, since workers take large groups and then the rest in this
    order: at the end it would run for minutes beside idle ones. Tests of real vLLM get their
    marker."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
        if group_of(item) == "stack":
            item.add_marker(pytest.mark.vllm)
    others = [item for item in items if Path(__file__).parent not in item.path.parents]
    sizes = Counter(map(group_of, ours))
    alone = [item for item in ours if sizes[group_of(item)] == 1]
    shared = [item for item in ours if sizes[group_of(item)] > 1]
    shared.sort(key=lambda item: (group_of(item), waits_most(item)))
    items[:] = [*alone, *others, *shared]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a platform after the last test that shares it."""
    group = group_of(item)
    if nextitem is None or group_of(nextitem) != group:
        item.config.stash[PLATFORMS].end(group)


def group_of(item: pytest.Item) -> str:
    """Return the platform that a test shares, or the module whose platform is its own."""
    used = (name for name in SHARED if name in getattr(item, "fixturenames", ()))
    return next(used, item.path.stem)


def waits_most(item: pytest.Item) -> bool:
    """Tell whether a test needs the engine that loads second."""
    return "embedding_stack" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def platforms(pytestconfig: pytest.Config) -> Iterator[Platforms]:
    """The shared platforms of this process."""
    platforms = pytestconfig.stash[PLATFORMS]
    yield platforms
    platforms.end_all()


@pytest.fixture
def replaceable_stack() -> Iterator[Stack]:
    """A platform of one test's own, with the simulated engine, whose servers it may replace."""
    stack = Stack(engine="simulated", prepared=True)
    stack.up()
    yield stack
    stack.remove()


@pytest.fixture(scope="session")
def traces() -> Iterator[Traces]:
    """Whatever the stack with real vLLM exports as traces."""
    with receiving() as traces:
        yield traces


@pytest.fixture
def stack(request: pytest.FixtureRequest, platforms: Platforms, traces: Traces) -> Stack:
    """The whole platform with real vLLM and the demo model, and with the demo embedder where a
    test of this run needs it; its engine may still load."""
    embedder = DEMO if any(map(waits_most, request.session.items)) else NO_EMBEDDER
    variables = {
        "PENSTOCK_EMBEDDING_MODEL": embedder,
        "OTEL_EXPORTER_OTLP_ENDPOINT": traces.endpoint,
    }
    return platforms.get("stack", partial(running, engine="vllm", **variables, **STILL_ENGINES))


@pytest.fixture
def simulated_stack(platforms: Platforms) -> Stack:
    """The whole platform with a simulated engine, which may be killed twenty times in a row."""
    start = partial(running, engine="simulated", prepared=True, **QUICK_RESTARTS)
    return platforms.get("simulated_stack", start)


@pytest.fixture
def two_gateways(platforms: Platforms) -> Stack:
    """The whole platform with two gateways before a simulated engine."""
    start = partial(
        running, engine="simulated", prepared=True, PENSTOCK_GATEWAYS="2", **QUICK_RESTARTS
    )
    return platforms.get("two_gateways", start)


@pytest.fixture
def second_gateway(simulated_stack: Stack, tmp_path: Path) -> Iterator[SecondGateway]:
    """Another gateway on the simulated stack's control plane and fleet."""
    with beside(simulated_stack, tmp_path) as gateway:
        yield gateway
