"""Engine counters from simulated engines to control: exact, once, through any outage."""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from serving.contract.engine_counters import EngineSample
from serving.contract.records import DeploymentRecord
from serving.contract.replica import ReplicaRecord
from tests.fixtures.engine_counters import read_metrics
from tests.fixtures.fleet_process import Control, FleetProcess, authorized, running_fleet
from tests.fixtures.waiting import eventually
from tests.serving.fleet.test_reconciler import PATIENT

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
    engine_arguments=("--itl-seconds", "0.001"),
)
EACH_TOKENS = 9
Pair = tuple[Control, FleetProcess]


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Pair]:
    # No probe but the canary: one under way while the fleet is killed would be nobody's.
    timings = {"SAMPLE_SECONDS": "0.2", "IDLE_PROBE_SECONDS": "60"}
    environment = {f"PENSTOCK_FLEET_{name}": value for name, value in timings.items()}
    async with running_fleet(tmp_path / "fleet", **PATIENT, **environment) as pair:
        pair[0].deploy(DEPLOYMENT)
        yield pair


async def complete(
    session: aiohttp.ClientSession, replica: ReplicaRecord, choices: int = 1
) -> None:
    body = {
        "model": "var_1",
        "prompt": "count " * 40,
        "max_tokens": EACH_TOKENS,
        "ignore_eos": True,
        "n": choices,
    }
    url, headers = f"{replica.url}/v1/completions", authorized(replica)
    async with session.post(url, json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()


def customers(sample: EngineSample) -> tuple[int, int]:
    """Return output tokens and requests without the fleet's own."""
    made = sample.output_tokens - sample.probe_output_tokens
    return made, sample.requests - sample.probe_requests


async def counted(control: Control, replica_id: str, made: int, requests: int) -> EngineSample:
    """Wait for a sample with so many output tokens and requests of customers."""

    async def found() -> EngineSample | None:
        for sample in reversed(control.lives().get(replica_id, [])):
            if customers(sample) == (made, requests):
                return sample
        return None

    return await eventually(found)


def only_grow(samples: list[EngineSample]) -> bool:
    figures = [msgspec.structs.astuple(sample)[4:13] for sample in samples]
    pairs = itertools.pairwise(figures)
    return all(a <= b for one, two in pairs for a, b in zip(one, two, strict=True))


async def test_samples_tell_what_the_engine_counted(fleet: Pair) -> None:
    control, process = fleet
    [replica] = await process.ready()
    for choices in (1, 1, 3):
        await complete(process.session, replica, choices)
    sample = await counted(control, replica.replica_id, 5 * EACH_TOKENS, 5)
    assert (sample.deployment_id, sample.started_at) == ("dep_1", replica.started_at)
    assert (sample.input_tokens - sample.probe_input_tokens) % 5 == 0  # once per choice
    assert 0 < sample.cached_tokens < sample.input_tokens
    assert sample.probe_requests >= 1
    assert only_grow(control.lives()[replica.replica_id])
    metrics = await asyncio.to_thread(read_metrics, f"{process.engine_url(replica)}/metrics")
    assert sample.cached_tokens == metrics["vllm:prompt_tokens_cached_total"]


async def test_a_replica_that_goes_leaves_its_last_figures(fleet: Pair) -> None:
    control, process = fleet
    [replica] = await process.ready()
    await complete(process.session, replica)
    control.deploy(msgspec.structs.replace(DEPLOYMENT, replicas_min=0))

    async def last() -> EngineSample | None:
        told = control.lives().get(replica.replica_id, ())
        return next((one for one in told if one.is_last), None)

    sample = await eventually(last)
    assert customers(sample) == (EACH_TOKENS, 1)
    assert sample == control.lives()[replica.replica_id][-1]
    alive_seconds = (sample.at - sample.started_at).total_seconds()
    assert 0 <= sample.busy_seconds <= sample.ready_seconds + 1 <= alive_seconds + 1


@pytest.mark.e2e
async def test_an_engine_that_is_killed_leaves_what_was_last_seen(fleet: Pair) -> None:
    control, process = fleet
    [replica] = await process.ready()
    await complete(process.session, replica)
    await counted(control, replica.replica_id, EACH_TOKENS, 1)
    os.kill(process.leader(replica.replica_id), signal.SIGKILL)

    async def last() -> EngineSample | None:
        told = control.lives().get(replica.replica_id, ())
        return next((one for one in told if one.is_last), None)

    assert customers(await eventually(last)) == (EACH_TOKENS, 1)


@pytest.mark.e2e
async def test_neither_controls_absence_nor_the_fleets_death_loses_a_sample(fleet: Pair) -> None:
    control, process = fleet
    [replica] = await process.ready()
    control.takes_no_samples = True
    await complete(process.session, replica)

    async def some_wait() -> bool:
        waiting = await process.metric("penstock_fleet_samples_unsent")
        return waiting >= 4 and await process.metric("penstock_fleet_samples_failures_total") >= 1

    await eventually(some_wait)
    await process.end(signal.SIGKILL)
    waiting = {
        (one.replica_id, one.at)
        for one in msgspec.json.decode(
            (process.directory / "samples.json").read_bytes(), type=list[EngineSample]
        )
    }
    await complete(process.session, replica)  # while nobody looks
    await process.start()
    await process.ready()
    control.takes_no_samples = False
    sample = await counted(control, replica.replica_id, 2 * EACH_TOKENS, 2)
    assert waiting <= control.samples.keys()
    assert sample.probe_output_tokens >= 8
    assert only_grow(control.lives()[replica.replica_id])
    assert len(control.fleet_ids) == 1


async def test_a_fleet_that_stops_in_order_reports_first(fleet: Pair) -> None:
    control, process = fleet
    [replica] = await process.ready()
    await complete(process.session, replica)
    assert await process.end() == 0
    last = control.lives()[replica.replica_id][-1]
    assert last.is_last
    assert customers(last) == (EACH_TOKENS, 1)


async def test_of_anothers_engine_only_what_it_counts_since_then_is_told(fleet: Pair) -> None:
    control, process = fleet
    [own] = await process.ready()
    await complete(process.session, own)
    external = msgspec.structs.replace(
        DEPLOYMENT,
        deployment_id="dep_2",
        engine="external",
        weights="var_1",
        external_urls=(process.engine_url(own),),
        engine_arguments=(),
    )
    control.deploy(DEPLOYMENT, external)
    replicas = await process.ready(2)
    [theirs] = [one.replica_id for one in replicas if one.deployment_id == "dep_2"]

    async def is_sampled() -> bool:
        return theirs in control.lives()

    await eventually(is_sampled)
    assert control.lives()[theirs][0].output_tokens <= 2  # a probe of either may fall between


async def test_an_engine_that_shows_no_counters_is_not_sampled(tmp_path: Path) -> None:
    timings = PATIENT | {"PENSTOCK_FLEET_SAMPLE_SECONDS": "0.1"}
    async with running_fleet(tmp_path / "fleet", **timings) as (control, process):
        mute = await _mute_engine()
        control.deploy(
            msgspec.structs.replace(
                DEPLOYMENT,
                engine="external",
                external_urls=(f"http://127.0.0.1:{mute.sockets[0].getsockname()[1]}",),
                engine_arguments=(),
            )
        )
        await process.ready()
        await asyncio.sleep(0.5)
        assert control.samples == {}
        mute.close()


async def _mute_engine() -> asyncio.Server:
    """Serve an engine that completes and is healthy, and knows no `/metrics`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status, body = "200 OK", b"{}"
        if b"/metrics" in head:
            status = "404 Not Found"
        elif b"/completions" in head:
            body = b'{"usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
        lines = f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(lines.encode() + body)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)
