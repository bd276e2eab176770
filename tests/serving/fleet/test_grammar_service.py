"""Grammars are judged beside the engines: each organization's one at a time, and each once."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from serving import grammar_verdicts
from serving.contract.codec import decode, encode
from serving.contract.credential import ServiceAuthenticator, ServiceIdentity, issue
from serving.contract.grammar import GrammarQuestion, GrammarVerdict
from serving.contract.records import DeploymentRecord
from serving.engine.adapter import ExternalAdapter
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.engine.vllm import VllmAdapter
from serving.fleet import grammar_service
from serving.fleet.config import FleetConfig
from serving.fleet.grammar_service import GrammarService
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.server import FleetServer
from serving.fleet.slot_shares import SlotAllocator
from serving.fleet.state_store import FleetStore
from tests.fixtures.catalog import deployment
from tests.fixtures.waiting import eventually

MODULE = ("tests.fixtures.grammar_judge",)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let whoever waits for a judge have the time that a busy machine takes."""
    monkeypatch.setattr(grammar_service, "SECONDS_MAX", 60.0)
    monkeypatch.setattr(grammar_service, "WAIT_SECONDS_MAX", 60.0)


class Judged(SimulatedAdapter):
    """A simulated engine with a judge."""

    module: tuple[str, ...] = MODULE

    def grammar_compiler(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        return self.module


class OfWeights(SimulatedAdapter):
    """A simulated engine with a judge for each set of weights."""

    def grammar_compiler(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        return (*MODULE, deployment.weights)


class Broken(Judged):
    """One whose judge does not start."""

    module = ("tests.fixtures.nothing_of_this_name",)


def question(*schemas: str, of: str = "org_a") -> GrammarQuestion:
    return GrammarQuestion(of, "dep_var_demo", schemas or ("{}",))


@asynccontextmanager
async def judging(
    engine: SimulatedAdapter | None = None,
    now: Callable[[], float] = time.monotonic,
    judges_max: int = 4,
) -> AsyncIterator[GrammarService]:
    made = GrammarService({"simulated": engine or Judged()}, judges_max=judges_max, clock=now)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def warm() -> AsyncIterator[GrammarService]:
    async with judging() as made:
        await made.judge(question(), deployment())
        await eventually(lambda: made._judges)
        yield made


async def test_nobody_can_tell_until_the_judge_is_there() -> None:
    async with judging() as made:
        assert await made.judge(question("false"), deployment()) == GrammarVerdict("unknown")
        await eventually(lambda: made._judges)
        verdict = await made.judge(question("{}", "false"), deployment())
        assert verdict == GrammarVerdict("refused", 1)


async def test_a_judge_starts_with_its_deployment_and_ends_with_it() -> None:
    async with judging() as made:
        stopped = msgspec.structs.replace(deployment(), replicas_min=0)
        made.set_deployments([stopped])
        assert not made._starting
        made.set_deployments([deployment()])
        await eventually(lambda: made._judges)
        assert await made.judge(question("false"), deployment()) == GrammarVerdict("refused")
        made.set_deployments([])
        assert not made._judges


async def test_engines_without_one_are_left_to_themselves() -> None:
    async with judging(SimulatedAdapter()) as made:
        assert await made.judge(question("false"), deployment()) == GrammarVerdict("unchecked")
        assert await made.judge(question("false"), None) == GrammarVerdict("unknown")


async def test_the_least_recently_used_makes_room_for_other_weights() -> None:
    now = [0.0]
    records = [msgspec.structs.replace(deployment(), weights=f"w{number}") for number in range(3)]
    async with judging(OfWeights(), lambda: now[0], judges_max=2) as made:
        made.set_deployments(records)
        await eventually(lambda: len(made._judges) == 2)
        assert await made.judge(question("{}"), records[2]) == GrammarVerdict("unknown")
        assert not made._starting, "those that have just begun stay for a while"
        now[0] += 61.0
        assert await made.judge(question("{}"), records[0]) == GrammarVerdict("good")
        assert await made.judge(question("{}"), records[2]) == GrammarVerdict("unknown")
        await eventually(lambda: len(made._judges) == 2)
        assert await made.judge(question("false"), records[2]) == GrammarVerdict("refused")
        assert await made.judge(question("false"), records[0]) == GrammarVerdict("refused")
        assert await made.judge(question("false"), records[1]) == GrammarVerdict("unknown")


async def test_a_judge_that_does_not_start_is_started_again_after_a_while() -> None:
    now = [0.0]
    async with judging(Broken(), lambda: now[0]) as made:
        for moment, is_tried in ((0.0, True), (59.0, False), (60.1, True)):
            now[0] = moment
            assert await made.judge(question(), deployment()) == GrammarVerdict("unknown")
            assert bool(made._starting) == is_tried
            await asyncio.gather(*made._starting.values())


async def test_one_with_many_slow_grammars_waits_for_its_own() -> None:
    async with warm() as made:
        many = [made.judge(question(f"slow {n}", of="org_b"), deployment()) for n in range(8)]
        flood = asyncio.gather(*many)
        await asyncio.sleep(0.05)
        neighbour = await asyncio.wait_for(made.judge(question("{} "), deployment()), 60)
        assert neighbour == GrammarVerdict("good")
        said = [verdict.verdict for verdict in await flood]
        assert said.count("busy") == 4
        assert said.count("good") == 4


async def test_who_asks_the_same_meanwhile_hears_the_same() -> None:
    async with warm() as made:
        crowd = [
            asyncio.create_task(made.judge(question("slow", of="org_b"), deployment()))
            for _ in range(40)
        ]
        await asyncio.sleep(0.05)
        crowd.pop(0).cancel()
        assert {each.verdict for each in await asyncio.gather(*crowd)} == {"good"}
        assert not made._asked


async def test_a_verdict_is_an_organizations_own_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with warm() as made:
        for of in ("org_a", "org_b"):
            assert await made.judge(question("1", of=of), deployment()) == GrammarVerdict("good")
        monkeypatch.setattr(made, "_ask", None)
        for of in ("org_a", "org_b"):
            assert await made.judge(question("1", of=of), deployment()) == GrammarVerdict("good")


async def test_verdicts_are_kept_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_verdicts, "VERDICTS_MAX", 3)
    async with warm() as made:
        for number in range(6):
            await made.judge(question(str(number)), deployment())
        assert len(made._verdicts) == 3


async def test_a_gateway_asks_over_http_with_its_credential(tmp_path: Path) -> None:
    callers = ServiceAuthenticator(("a secret",))
    config = FleetConfig("http://control", "", callers, "127.0.0.1", 1, tmp_path, 20_000, 1)
    async with judging(SimulatedAdapter()) as made, aiohttp.ClientSession() as session:
        fleet = FleetReconciler(config, {}, FleetStore(tmp_path), session)
        server = FleetServer(fleet, CollectorRegistry(), callers, made, SlotAllocator(epoch=1))
        url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}/grammars"
        known, other = (
            {"authorization": f"Bearer {issue('a secret', ServiceIdentity(role, 'test'))}"}
            for role in ("gateway", "control")
        )
        try:
            async with session.post(url, data=encode(question()), headers=known) as answer:
                assert decode(await answer.read(), GrammarVerdict) == GrammarVerdict("unknown")
            async with session.post(url, data=b"{}", headers=known) as answer:
                assert answer.status == 400
            for headers in ({}, other, {"authorization": "Bearer another"}):
                async with session.post(url, data=encode(question()), headers=headers) as answer:
                    assert answer.status == 401
        finally:
            await server.stop()


def test_vllm_compiles_with_one_library_and_the_weights_own_tokenizer() -> None:
    launch = VllmAdapter("cpu").launch(deployment(), port=1)
    at = launch.command.index("--structured-outputs-config")
    assert launch.command[at + 1] == '{"backend":"xgrammar"}'
    assert VllmAdapter("cpu").grammar_compiler(deployment()) == (
        "serving.engine.grammar_compiler",
        "w",
    )
    assert ExternalAdapter().grammar_compiler(deployment()) is None
