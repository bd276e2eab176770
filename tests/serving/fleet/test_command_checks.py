"""Commands judged before engines start: by vLLM itself, or not at all where it does not answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from serving.contract.node import ENGINE_PORT
from serving.contract.records import DEFAULT_FLEET, DeploymentRecord
from serving.contract.resources import ReplicaResources
from serving.engine.adapter import LaunchSpec
from serving.engine.command_check import path_problem
from serving.engine.vllm import Device, VllmAdapter
from serving.fleet.command_checks import CommandChecks
from serving.fleet.launcher import StartRefused

WEIGHTS = Path(__file__).parents[3] / "infra" / "demo_model" / "weights"
EMBEDDER = Path(__file__).parents[3] / "infra" / "demo_embedder" / "weights" / "bf16"
CHAT = DeploymentRecord(
    deployment_id="dep_1",
    variant_id="var_1",
    fleet_id=DEFAULT_FLEET,
    engine="vllm",
    weights=str(WEIGHTS / "bf16"),
    replicas_min=1,
    replicas_max=1,
    slots=8,
)


def changed(*arguments: str, **fields: object) -> DeploymentRecord:
    return msgspec.structs.replace(CHAT, engine_arguments=arguments, **fields)


ACCEPTED = {
    "chat": CHAT,
    "tools": changed("--tool-call-parser", "hermes"),
    "embed": changed(weights=str(EMBEDDER), task="embed"),
    "two by two": changed(resources=ReplicaResources("", 2, 2)),
    "context": changed(resources=ReplicaResources(context_tokens=1_024)),
    "int8": changed(weights=str(WEIGHTS / "int8")),
    "int4": changed(weights=str(WEIGHTS / "int4")),
}
REFUSED = {
    "unknown argument": (changed("--no-such-flag", "1"), "--no-such-flag"),
    "bad value": (changed("--block-size", "many"), "--block-size"),
    "heads": (changed(resources=ReplicaResources("", 3)), "divisible"),
    "context": (changed(resources=ReplicaResources(context_tokens=10**6)), "2048"),
    "quantization": (changed("--quantization", "awq"), "awq"),
    "memory share": (changed("--gpu-memory-utilization", "1.5"), "less than or equal to 1"),
}


def launch(deployment: DeploymentRecord, device: Device = "cpu") -> LaunchSpec:
    return VllmAdapter(device).launch(deployment, port=ENGINE_PORT)


@pytest.mark.full
@pytest.mark.vllm
async def test_vllm_takes_every_command_that_is_made_and_refuses_what_would_fail() -> None:
    """One process for all of them."""
    checks = CommandChecks(keeps=True, seconds_max=240.0)
    try:
        for name, deployment in ACCEPTED.items():
            for device in ("cpu", "cuda"):
                verdict = await checks._judge(launch(deployment, device))
                assert (verdict.problem, verdict.unjudged) == ("", ""), (name, device)
        for name, (deployment, words) in REFUSED.items():
            with pytest.raises(StartRefused) as caught:
                await checks.check(deployment, launch(deployment))
            assert words in str(caught.value), name
        await checks.check(CHAT, launch(CHAT))
        await checks.close()
        await checks.check(CHAT, VllmAdapter("cpu").launch(CHAT, port=9_001))
        assert checks._process is None, "it is known to be good"
    finally:
        await checks.close()


@pytest.fixture
async def slow() -> AsyncIterator[CommandChecks]:
    """Checks by a process that never says that it is there."""
    checks = CommandChecks(keeps=True, module=("http.server", "0"), seconds_max=0.2)
    yield checks
    await checks.close()


async def test_the_time_for_a_verdict_includes_the_wait_for_the_turn(slow: CommandChecks) -> None:
    async with slow._turn:
        verdict = await asyncio.wait_for(slow._judge(launch(CHAT)), 20)
        assert verdict.unjudged.startswith("no verdict within")
        assert slow._end is None, "the process is another's, who has the turn"


async def test_beside_gpus_the_process_stays_for_those_who_wait_and_no_longer() -> None:
    checks = CommandChecks(keeps=False, module=("tests.fixtures.offload_worker",), seconds_max=60.0)
    async with checks._turn:
        judged = [asyncio.create_task(checks._judge(launch(CHAT))) for _ in range(3)]
        await asyncio.sleep(0)
        judged[1].cancel()
    first, _, last = await asyncio.gather(*judged, return_exceptions=True)
    assert first == last, "answers name their process"
    assert checks._process is None
    await checks.close()


async def test_an_engine_starts_where_nobody_can_judge_its_command(
    slow: CommandChecks, caplog: pytest.LogCaptureFixture
) -> None:
    await slow.check(CHAT, launch(CHAT))
    broken = CommandChecks(keeps=True, module=("no.such.module",), seconds_max=30.0)
    await broken.check(CHAT, launch(CHAT))
    said = caplog.text
    assert said.count("command_not_checked") == 2
    assert "no verdict within" in said
    assert "the process that judges ended" in said
    await asyncio.wait_for(broken.close(), 5)


def test_paths_lead_to_files_within_the_folders_of_weights(tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    for folder in (store, other):
        folder.mkdir()
        (folder / "chat.jinja").touch()
    (store / "link.jinja").symlink_to(other / "chat.jinja")
    inside, outside = f"{store}/chat.jinja", f"{other}/chat.jinja"
    assert path_problem([str(store), "--chat-template", inside], [store]) == ""
    assert path_problem(["owner/name@commit", f"--chat-template={outside}"], []) == ""
    assert "outside" in path_problem(["--chat-template", outside], [store])
    assert "outside" in path_problem([f"--chat-template={store}/../other/chat.jinja"], [store])
    assert "outside" in path_problem([f"{store}/link.jinja"], [store])
    assert "is not there" in path_problem([f"{store}/none.jinja"], [store])


async def test_a_command_with_a_wrong_path_is_refused_without_asking_vllm() -> None:
    missing = changed("--chat-template", "/none/chat.jinja")
    checks = CommandChecks(keeps=True, module=("no.such.module",))
    with pytest.raises(StartRefused, match=r"/none/chat\.jinja is not there; put the file"):
        await checks.check(missing, launch(missing))
