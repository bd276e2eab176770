"""The fleet as a process, with simulated engines: what it starts, sees die, and leaves behind."""

import asyncio
import json
import os
import re
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from serving.contract.codec import decode, encode
from serving.contract.credential import Role, ServiceIdentity, issue
from serving.contract.feed import FeedPage
from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord
from serving.contract.replica_token import unseal
from serving.contract.text_guard import TextGuard
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.fleet.engine_process import REPLICA_VARIABLE, ProcessIdentity, mark_of
from tests.fixtures.environment import free_port
from tests.fixtures.fleet_process import SECRET, Control, FleetProcess, authorized, running_fleet
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.integration

DEPLOYMENT = DeploymentRecord(
    deployment_id="dep_1",
    variant_id="var_1",
    fleet_id="default",
    engine="simulated",
    weights="none",
    replicas_min=1,
    replicas_max=3,
    slots=4,
    engine_arguments=("--itl-seconds", "0.02", "--kv-cache-tokens", "100000"),
)


PATIENT = {"PENSTOCK_FLEET_ANSWER_SECONDS": "20", "PENSTOCK_FLEET_STUCK_SECONDS": "60"}
"""Where no engine is to be found stuck: on a busy machine a sound one is silent for a second."""
EMBEDDER = msgspec.structs.replace(
    DEPLOYMENT, task="embed", engine_arguments=("--prefill-tokens-per-second", "100")
)


def changed(**fields: Any) -> DeploymentRecord:
    return msgspec.structs.replace(DEPLOYMENT, **fields)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[tuple[Control, FleetProcess]]:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(DEPLOYMENT)
        yield control, process


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[tuple[Control, FleetProcess]]:
    """One that soon finds an engine stuck."""
    async with running_fleet(tmp_path / "fleet") as (control, process):
        control.deploy(DEPLOYMENT)
        yield control, process


async def chat(
    session: aiohttp.ClientSession,
    replica: ReplicaRecord,
    tokens: int,
    started: asyncio.Event | None = None,
) -> list[str]:
    """Stream a chat from a replica and return its events."""
    body = {
        "model": "var_1",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    url, headers = f"{replica.url}/v1/chat/completions", authorized(replica)
    async with session.post(url, json=body, headers=headers) as answer:
        assert answer.status == 200
        text = ""
        async for chunk in answer.content.iter_any():
            text += chunk.decode()
            if started is not None:
                started.set()
    return [part.removeprefix("data: ") for part in text.split("\n\n") if part]


async def begun(
    process: FleetProcess, replica: ReplicaRecord, work: Coroutine[Any, Any, Any], *, busy: bool
) -> asyncio.Task[Any]:
    """Start work, and wait until the engine is at it, or has done it and is idle."""
    task = asyncio.create_task(work)

    async def is_seen() -> bool:
        async with process.session.get(f"{process.engine_url(replica)}/metrics") as answer:
            text = await answer.text()
        found = re.search(r"^vllm:num_requests_running(?:{.*})? (\S+)$", text, re.MULTILINE)
        return found is not None and (float(found[1]) > 0) == busy and (busy or task.done())

    await eventually(is_seen)
    return task


async def inject(
    process: FleetProcess, replica: ReplicaRecord, faults: list[dict[str, str]]
) -> None:
    url = f"{process.engine_url(replica)}/simulated/faults"
    async with process.session.post(url, json=faults) as answer:
        assert answer.status == 200


async def failed(process: FleetProcess) -> list[ReplicaRecord]:
    return [one for one in await process.replicas() if one.state == "failed"]


async def test_a_replica_becomes_ready_after_a_real_generation(
    fleet: tuple[Control, FleetProcess],
) -> None:
    _, process = fleet
    [replica] = await process.ready()
    assert replica.url.startswith("http://127.0.0.1:")
    assert (replica.deployment_id, replica.slots, replica.engine) == ("dep_1", 4, "simulated")
    assert replica.probe_output_tokens > 8
    assert replica.text_guard == TextGuard()
    assert replica.kv_capacity_tokens == 100_000
    tokens = {"replica_id": replica.replica_id, "kind": "output"}
    assert await process.metric("penstock_fleet_probe_tokens_total", **tokens) >= 8
    assert len(await chat(process.session, replica, 5)) == 7


async def embed(session: aiohttp.ClientSession, replica: ReplicaRecord, tokens: int) -> int:
    """Have a replica read so many tokens; return the numbers of the vector."""
    body = {"model": "var_1", "input": [1] * tokens}
    url, headers = f"{replica.url}/v1/embeddings", authorized(replica)
    async with session.post(url, json=body, headers=headers) as answer:
        assert answer.status == 200
        return len((await answer.json())["data"][0]["embedding"])


async def test_an_embedder_becomes_ready_after_a_real_embedding(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(EMBEDDER)
        [replica] = await process.ready()
        assert (replica.probe_input_tokens, replica.probe_output_tokens) == (2, 0)
        assert {"embeddings", "dimensions", "no_prefix_cache"} < set(replica.capabilities)
        assert "chat" not in replica.capabilities
        assert await embed(process.session, replica, 5) == 64


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.parametrize("busy", [True, False])
async def test_an_embedder_that_reads_no_token_is_ejected_and_a_slow_one_is_not(
    tmp_path: Path, busy: bool
) -> None:
    async with running_fleet(tmp_path / "fleet") as (control, process):
        control.deploy(EMBEDDER)
        [first] = await process.ready()
        many = [embed(process.session, first, 20) for _ in range(8)]
        assert await asyncio.gather(*many) == [64] * 8  # 1.6 s, longer than a stuck one is given
        work = await begun(
            process, first, embed(process.session, first, 800 if busy else 1), busy=busy
        )
        fault = [{"kind": "freeze"}]
        async with process.session.post(
            f"{process.engine_url(first)}/simulated/faults", json=fault
        ) as answer:
            assert answer.status == 200
        [dead] = await eventually(lambda: failed(process))
        assert dead.replica_id == first.replica_id
        assert ("token was made" if busy else "idle probe") in dead.reason
        await process.ready()
        await asyncio.gather(work, return_exceptions=True)


async def test_the_stages_of_loading_are_told(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        # For longer than this test: however seldom it looks, it is seen.
        control.deploy(changed(engine_arguments=("--load-seconds", "600")))

        async def is_loading() -> bool:
            return any("loading weights" in one.progress for one in await process.replicas())

        await eventually(is_loading)


async def test_each_gateway_reads_its_own_token_and_control_none(
    fleet: tuple[Control, FleetProcess],
) -> None:
    _, process = fleet
    [replica] = await process.ready()

    async def page(role: Role, lineage: str = "", after: int = 0) -> FeedPage:
        credential = issue(SECRET, ServiceIdentity(role, "another"))
        asked = {"after": after, "lineage": lineage} if lineage else {"after": after}
        headers = {"authorization": f"Bearer {credential}"}
        url = f"{process.base}/replicas"
        async with process.session.get(url, params=asked, headers=headers) as answer:
            return decode(await answer.read(), FeedPage)

    theirs = await page("gateway")
    assert replica.token.encode() not in encode(theirs)
    [sealed] = [decode(one.record, ReplicaRecord).token for one in theirs.changes]
    credential = issue(SECRET, ServiceIdentity("gateway", "another"))
    assert unseal(credential, replica.replica_id, sealed) == replica.token
    for change in (await page("control")).changes:
        assert decode(change.record, ReplicaRecord).token == ""
    # What another credential sealed is no use: everything is told anew.
    ours = await process.page()
    assert ours.lineage != theirs.lineage
    again = await page("gateway", ours.lineage, ours.version)
    assert again.snapshot
    assert replica.token not in process.state_file.read_text()


async def test_the_feed_wants_the_secret_and_wakes_on_news(
    fleet: tuple[Control, FleetProcess],
) -> None:
    control, process = fleet
    await process.ready()
    for headers in ({}, {"authorization": "Bearer wrong"}):
        async with process.session.get(f"{process.base}/replicas", headers=headers) as answer:
            assert answer.status == 401
    poll = asyncio.create_task(process.page((await process.page()).version))
    await asyncio.sleep(0.3)
    control.deploy(changed(replicas_min=0))
    page = await asyncio.wait_for(poll, 20)  # without news it answers after 25
    assert b"draining" in bytes(page.changes[0].record)


async def test_a_killed_engine_is_replaced(fleet: tuple[Control, FleetProcess]) -> None:
    _, process = fleet
    [first] = await process.ready()
    os.kill(process.leader(first.replica_id), signal.SIGKILL)
    await eventually(lambda: failed(process))
    [second] = await process.ready()
    assert second.replica_id != first.replica_id
    [dead] = await failed(process)
    assert "the engine process ended" in dead.reason
    assert await process.metric("penstock_fleet_restarts_total", deployment_id="dep_1") == 1
    assert len(process.engines()) == 1


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.parametrize("busy", [True, False])
async def test_a_stopped_engine_is_ejected_and_replaced(
    strict: tuple[Control, FleetProcess], busy: bool
) -> None:
    _, process = strict
    [first] = await process.ready()
    work = await begun(
        process, first, chat(process.session, first, 8_000 if busy else 1), busy=busy
    )
    os.kill(process.leader(first.replica_id), signal.SIGSTOP)
    await eventually(lambda: failed(process))
    [second] = await process.ready()
    assert second.replica_id != first.replica_id
    assert await process.metric("penstock_fleet_ejections_total", deployment_id="dep_1") == 1
    assert len(process.engines()) == 1
    await asyncio.gather(work, return_exceptions=True)


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.parametrize("busy", [True, False])
async def test_an_engine_that_answers_but_makes_no_token_is_ejected(
    strict: tuple[Control, FleetProcess], busy: bool
) -> None:
    _, process = strict
    [first] = await process.ready()
    work = await begun(
        process, first, chat(process.session, first, 8_000 if busy else 1), busy=busy
    )
    fault = [{"kind": "freeze"}]
    async with process.session.post(
        f"{process.engine_url(first)}/simulated/faults", json=fault
    ) as answer:
        assert answer.status == 200
    [dead] = await eventually(lambda: failed(process))
    assert "token was made" in dead.reason if busy else "idle probe" in dead.reason
    await process.ready()
    await asyncio.gather(work, return_exceptions=True)


async def test_an_engine_that_says_it_is_dead_is_replaced(
    fleet: tuple[Control, FleetProcess],
) -> None:
    _, process = fleet
    [first] = await process.ready()
    await process.session.post(
        f"{process.engine_url(first)}/simulated/faults", json=[{"kind": "dead"}]
    )
    [dead] = await eventually(lambda: failed(process))
    assert dead.reason == "the engine reports that it is dead"
    await process.ready()


async def test_a_busy_engine_is_never_ejected(tmp_path: Path) -> None:
    # Found stuck by its tokens alone: not by a late answer, nor by a probe while it is idle.
    timings = PATIENT | {
        "PENSTOCK_FLEET_STUCK_SECONDS": "1",
        "PENSTOCK_FLEET_IDLE_PROBE_SECONDS": "60",
    }
    async with running_fleet(tmp_path / "fleet", **timings) as (control, process):
        control.deploy(DEPLOYMENT)
        [replica] = await process.ready()
        # 4 slots and 8 streams of 1.2 s: half wait longer than a stuck engine is given.
        streams = [chat(process.session, replica, 60) for _ in range(8)]
        for events in await asyncio.gather(*streams):
            assert events[-1] == "[DONE]"
        assert await failed(process) == []
        assert await process.metric("penstock_fleet_ejections_total") == 0


async def test_a_canary_that_fails_never_becomes_ready(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(changed(engine_arguments=("--fault", "error:status=500,times=99")))
        [dead, *_] = await eventually(lambda: failed(process))
        assert dead.reason == "canary: a test of /v1/completions was answered 500"
        assert await process.metric("penstock_fleet_replicas", state="ready") == 0


async def test_a_canary_puts_every_part_to_work_before_the_replica_is_ready(
    tmp_path: Path,
) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        # A plain answer and a sampled one are whole; then comes one with log-probabilities.
        faults = ("stall:after_chunks=999,times=2", "error:status=500,times=99")
        arguments = [part for fault in faults for part in ("--fault", fault)]
        control.deploy(changed(engine_arguments=tuple(arguments)))
        [dead, *_] = await eventually(lambda: failed(process))
        assert dead.reason == "canary: a test of logprobs was answered 500"


async def test_an_engine_that_cannot_start_says_why_and_waits_longer_each_time(
    tmp_path: Path,
) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(changed(engine_arguments=("--slots", "many")))

        async def restarts() -> bool:
            return await process.metric("penstock_fleet_restarts_total") >= 3

        await eventually(restarts)
        assert "invalid int value" in (await failed(process))[0].reason


async def test_scale_from_none_to_one_to_none(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", **PATIENT) as (control, process):
        control.deploy(changed(replicas_min=0))

        async def is_informed() -> bool:
            try:
                async with process.session.get(f"{process.base}/readyz") as answer:
                    return answer.status == 200
            except aiohttp.ClientConnectionError:
                return False

        await eventually(is_informed)
        assert await process.replicas() == []
        control.deploy(DEPLOYMENT)
        await process.ready()
        control.deploy(changed(replicas_min=0))

        async def is_stopped() -> bool:
            return [one.state for one in await process.replicas()] == ["stopped"]

        await eventually(is_stopped)
        assert process.engines() == []


async def test_a_drain_cuts_no_stream_that_its_deployment_allows(tmp_path: Path) -> None:
    # What the fleet gives its replicas when it is stopped itself is less.
    short = {"PENSTOCK_FLEET_DRAIN_SECONDS": "0.5"}
    async with running_fleet(tmp_path / "fleet", **PATIENT, **short) as (control, process):
        control.deploy(DEPLOYMENT)
        [replica] = await process.ready()
        started = asyncio.Event()
        stream = asyncio.create_task(chat(process.session, replica, 100, started))
        await started.wait()
        control.deploy(changed(replicas_min=0))
        events = await stream
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"
        await eventually(lambda: _are_gone(process))


async def _are_gone(process: FleetProcess) -> bool:
    return process.engines() == []


async def test_a_changed_deployment_is_replaced_without_a_gap(
    fleet: tuple[Control, FleetProcess],
) -> None:
    control, process = fleet
    [first] = await process.ready()
    control.deploy(changed(slots=8))

    async def succeeded() -> bool:
        ready = [one for one in await process.replicas() if one.state == "ready"]
        assert ready, "a moment without any ready replica"
        return [one.slots for one in ready] == [8]

    await eventually(succeeded)
    assert first.replica_id not in {one.replica_id for one in await process.ready()}


async def test_an_external_engine_is_probed_and_never_started(
    fleet: tuple[Control, FleetProcess],
) -> None:
    control, process = fleet
    [own] = await process.ready()
    external = changed(
        deployment_id="dep_2",
        engine="external",
        weights="var_1",
        external_urls=(process.engine_url(own),),
        engine_arguments=(),
    )
    control.deploy(DEPLOYMENT, external)
    ready = await process.ready(2)
    assert {one.url for one in ready} == {own.url, process.engine_url(own)}
    assert {one.kv_capacity_tokens for one in ready} == {100_000}
    assert len(process.engines()) == 1


@pytest.mark.e2e
@pytest.mark.full
async def test_a_killed_fleets_replicas_are_adopted_and_no_stream_is_cut(
    fleet: tuple[Control, FleetProcess],
) -> None:
    _, process = fleet
    [before] = await process.ready()
    started = asyncio.Event()
    stream = asyncio.create_task(chat(process.session, before, 150, started))
    await started.wait()
    await process.end(signal.SIGKILL)
    await process.start()
    [after] = await process.ready()
    assert (after.replica_id, after.url) == (before.replica_id, before.url)
    assert after.probe_output_tokens >= before.probe_output_tokens
    assert after.kv_capacity_tokens == 100_000
    assert (await stream)[-1] == "[DONE]"
    os.kill(process.leader(after.replica_id), signal.SIGKILL)
    await eventually(lambda: failed(process))
    await process.ready()
    assert len(process.engines()) == 1


@pytest.mark.e2e
@pytest.mark.full
async def test_an_engine_started_in_the_moment_the_fleet_died_is_adopted_too(
    fleet: tuple[Control, FleetProcess],
) -> None:
    _, process = fleet
    [before] = await process.ready()
    await process.end(signal.SIGKILL)
    stored = process.stored()
    [replica] = stored.replicas
    intent = msgspec.structs.replace(replica, handle=None, state="pending")
    process.state_file.write_bytes(encode(msgspec.structs.replace(stored, replicas=(intent,))))
    await process.start()
    [after] = await process.ready()
    assert after.replica_id == before.replica_id
    assert len(process.engines()) == 1


async def test_an_engine_of_a_release_without_nodes_is_adopted_and_replaced_behind_one(
    fleet: tuple[Control, FleetProcess],
) -> None:
    _, process = fleet
    [first] = await process.ready()
    await process.end(signal.SIGKILL)
    stored = process.stored()
    os.killpg(process.leader(first.replica_id), signal.SIGKILL)
    port = free_port()
    command = SimulatedAdapter().launch(DEPLOYMENT, port=port).command
    environment = os.environ | {REPLICA_VARIABLE: first.replica_id}
    old = await asyncio.create_subprocess_exec(
        *command, env=environment, start_new_session=True, stdout=DEVNULL
    )
    [replica] = stored.replicas
    leader = ProcessIdentity(old.pid, mark_of(old.pid) or "")
    as_before = msgspec.structs.replace(replica, handle=None, port=port, leader=leader)
    state = msgspec.json.decode(encode(msgspec.structs.replace(stored, replicas=(as_before,))))
    for added in ("handle", "token_mark", "has_node", "devices"):
        del state["replicas"][0][added]
    for written in (state["replicas"][0]["deployment"], *state["deployments"]):
        for added in ("fleet_id", "resources"):
            del written[added]
    process.state_file.write_bytes(msgspec.json.encode(state))
    await process.start()
    [adopted] = await process.ready()
    assert (adopted.replica_id, adopted.url) == (first.replica_id, f"http://127.0.0.1:{port}")
    assert not adopted.token
    assert len(await chat(process.session, adopted, 5)) == 7
    old.kill()
    await old.wait()
    await eventually(lambda: failed(process))
    [second] = await process.ready()
    assert second.token
    assert second.url != process.engine_url(second)


async def test_a_fleet_starts_with_control_down_as_it_last_was(
    fleet: tuple[Control, FleetProcess],
) -> None:
    control, process = fleet
    [before] = await process.ready()
    await process.end(signal.SIGKILL)
    await control.stop()
    os.kill(process.leader(before.replica_id), signal.SIGKILL)
    await process.start()
    [after] = await process.ready()
    assert after.replica_id != before.replica_id


async def test_a_fleet_told_to_stop_stops_its_replicas(
    fleet: tuple[Control, FleetProcess],
) -> None:
    _, process = fleet
    await process.ready()
    assert await process.end() == 0
    assert process.engines() == []


async def test_a_fleet_told_to_keep_its_replicas_leaves_them(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "fleet", PENSTOCK_FLEET_KEEP_REPLICAS="1", **PATIENT) as (
        control,
        process,
    ):
        control.deploy(DEPLOYMENT)
        [before] = await process.ready()
        assert await process.end() == 0
        assert len(process.engines()) == 1
        await process.start()
        [after] = await process.ready()
        assert after.replica_id == before.replica_id


async def test_a_second_fleet_on_the_same_directory_refuses_to_start(
    fleet: tuple[Control, FleetProcess],
) -> None:
    control, process = fleet
    await process.ready()
    second = FleetProcess(control, process.directory)
    await second.start()
    assert second.process is not None
    assert await second.process.wait() == 1
    said = (process.directory.parent / "fleet.log").read_text()
    assert f"another one runs on {process.directory}" in said
    await second.session.close()
    assert len(await process.ready()) == 1
