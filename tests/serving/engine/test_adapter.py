"""How engines are started, and what is read from them."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from serving.contract.records import DeploymentRecord
from serving.contract.resources import ReplicaResources
from serving.contract.text_guard import TextGuard
from serving.engine.adapter import ExternalAdapter
from serving.engine.chat_template import template_tokens
from serving.engine.memory import memory_estimate
from serving.engine.probe import (
    EngineHealth,
    EngineProbe,
    EngineUnresponsive,
    exercises,
    read_health,
    read_kv_capacity,
)
from serving.engine.simulated.adapter import SimulatedAdapter
from serving.engine.simulated.server import SimulatedServer
from serving.engine.simulated.settings import Fault, SimulatorSettings
from serving.engine.vllm import Device, VllmAdapter
from serving.engine.weights import (
    WeightsUnreadable,
    check_weights,
    context_tokens,
    weights_bytes,
    weights_digest,
)
from serving.fleet.__main__ import adapters


def deployment(*arguments: str, weights: str = "some/model") -> DeploymentRecord:
    return DeploymentRecord(
        deployment_id="dep_1",
        variant_id="var_1",
        fleet_id="default",
        engine="vllm",
        weights=weights,
        replicas_min=1,
        replicas_max=1,
        slots=7,
        engine_arguments=arguments,
    )


BF16 = str(Path(__file__).parents[3] / "infra" / "demo_model" / "weights" / "bf16")


def value_of(command: tuple[str, ...], flag: str) -> str:
    """The last one counts, as it does for argparse."""
    last = len(command) - 1 - command[::-1].index(flag)
    return command[last + 1]


def test_vllm_is_bound_to_loopback_whatever_the_deployment_says() -> None:
    asked = deployment("--host", "0.0.0.0", "--prefix-caching-hash-algo", "xxhash")  # noqa: S104
    command = VllmAdapter("cpu").launch(asked, port=9_000).command
    assert value_of(command, "--host") == "127.0.0.1"
    assert value_of(command, "--port") == "9000"
    assert value_of(command, "--prefix-caching-hash-algo") == "sha256"


def test_vllm_serves_the_variant_with_its_slots() -> None:
    command = VllmAdapter("cpu").launch(deployment(), port=9_000).command
    assert value_of(command, "--served-model-name") == "var_1"
    assert value_of(command, "--max-num-seqs") == "7"
    assert "--enable-prompt-tokens-details" in command


def test_only_a_cpu_gets_small_blocks_and_eager_mode() -> None:
    assert value_of(VllmAdapter("cpu").launch(deployment(), port=1).command, "--block-size") == "32"
    assert "--enforce-eager" in VllmAdapter("cpu").launch(deployment(), port=1).command
    on_cuda = VllmAdapter("cuda").launch(deployment(), port=1)
    assert not {"--block-size", "--enforce-eager"} & set(on_cuda.command)
    assert "VLLM_CPU_KVCACHE_SPACE" not in on_cuda.environment


@pytest.mark.parametrize(
    ("device", "arguments", "is_eager"),
    [
        ("cpu", (), True),
        ("cpu", ("--no-enforce-eager",), False),
        ("cuda", (), False),
        ("cuda", ("--enforce-eager",), True),
    ],
)
def test_an_engine_that_runs_eagerly_compiles_nothing_in_the_middle_of_serving(
    device: Device, arguments: tuple[str, ...], is_eager: bool
) -> None:
    environment = VllmAdapter(device).launch(deployment(*arguments), port=1).environment
    assert environment.get("TORCHDYNAMO_DISABLE") == ("1" if is_eager else None)


def test_cpu_replicas_share_the_cores_instead_of_pinning_the_same_ones() -> None:
    environment = VllmAdapter("cpu", cpu_threads=3).launch(deployment(), port=1).environment
    assert environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert environment["OMP_NUM_THREADS"] == "3"


def test_a_tool_parser_turns_tools_on() -> None:
    asked = deployment("--tool-call-parser", "hermes")
    launch = VllmAdapter("cpu").launch(asked, port=1)
    assert "--enable-auto-tool-choice" in launch.command
    assert value_of(launch.command, "--tool-parser-plugin") == "serving.engine.tool_parser"
    assert launch.environment["PENSTOCK_TOOL_PARSER"] == "hermes"
    assert "tools" in VllmAdapter("cpu").capabilities(asked)
    assert "tools" not in VllmAdapter("cpu").capabilities(deployment())


def test_weights_may_name_their_tool_parser_and_a_deployment_another(tmp_path: Path) -> None:
    (tmp_path / "serving.json").write_text('{"tool_call_parser": "hermes"}')
    own = deployment(weights=str(tmp_path))
    command = VllmAdapter("cpu").launch(own, port=1).command
    assert value_of(command, "--tool-call-parser") == "hermes"
    assert value_of(command, "--tool-strict-level") == "auto"
    assert "--enable-auto-tool-choice" in command
    assert "tools" in VllmAdapter("cpu").capabilities(own)
    other = deployment("--tool-call-parser", "llama3_json", weights=str(tmp_path))
    command = VllmAdapter("cpu").launch(other, port=1).command
    assert value_of(command, "--tool-call-parser") == "llama3_json"
    environment = VllmAdapter("cpu").launch(other, port=1).environment
    assert environment["PENSTOCK_TOOL_PARSER"] == "llama3_json"


def test_text_is_guarded_by_a_copy_of_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = {"added_tokens": [{"id": 0, "content": "<|end|>"}], "normalizer": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    local, copies = deployment(weights=str(tmp_path)), tmp_path / "copies"
    launch = VllmAdapter("cpu", tokenizers=copies).launch(local, port=1)
    [copy] = copies.iterdir()
    assert value_of(launch.command, "--tokenizer") == str(copy)
    assert launch.text_guard == TextGuard(takes_mark=True, tokens=("<|end|>",))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(WeightsUnreadable, match="tokenizer"):
        VllmAdapter("cpu", tokenizers=copies).launch(local, port=1)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    own = deployment("--tokenizer", "other", weights=str(tmp_path))
    for launch in (
        VllmAdapter("cpu", tokenizers=copies).launch(own, port=1),
        VllmAdapter("cpu", tokenizers=copies).launch(deployment(), port=1),
        VllmAdapter("cpu").launch(local, port=1),
    ):
        assert launch.text_guard is None
        assert str(copy) not in launch.command


@pytest.mark.parametrize(
    "said",
    [
        "",
        '{"\udcff": 1}',
        "{}",
        '{"tool_call_parser": "--port"}',
        '{"tool_call_parser": "hermes", "tool_strict_level": "parameter"}',
        '{"host": "x"}',
    ],
)
def test_what_weights_say_of_their_serving_is_closed(tmp_path: Path, said: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "serving.json").write_bytes(said.encode(errors="surrogateescape"))
    with pytest.raises(WeightsUnreadable, match=r"serving\.json"):
        check_weights(str(tmp_path))


def test_local_weights_are_served_offline_and_counted(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(1_000))
    local = VllmAdapter("cpu").launch(deployment(weights=str(tmp_path)), port=1)
    remote = VllmAdapter("cpu").launch(deployment(), port=1)
    assert local.environment["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in remote.environment
    assert local.memory_bytes - remote.memory_bytes == 1_200
    assert weights_bytes(str(tmp_path)) == 1_000


def test_weights_say_their_context(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 2_048}))
    assert context_tokens(tmp_path) == 2_048
    with pytest.raises(WeightsUnreadable, match=r"no \.safetensors"):
        check_weights(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert check_weights(str(tmp_path)) == weights_digest(tmp_path)
    assert check_weights("some/model") is None
    with pytest.raises(WeightsUnreadable):
        check_weights(str(tmp_path / "nothing"))


def test_weights_are_what_their_digest_says(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    tensors = tmp_path / "model.safetensors"
    tensors.write_bytes(b"weights")
    digest = check_weights(str(tmp_path))
    (tmp_path / "quality.json").write_text("{}")
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "state.json").write_text("{}")
    assert check_weights(str(tmp_path), digest) == digest
    for change in (
        lambda: tensors.write_bytes(b"WEIGHTS"),
        lambda: tensors.rename(tmp_path / "other.safetensors"),
        lambda: (tmp_path / "tokenizer.json").write_text("{}"),
    ):
        before = weights_digest(tmp_path)
        change()
        assert weights_digest(tmp_path) != before
    with pytest.raises(WeightsUnreadable, match="add a variant for the new weights"):
        check_weights(str(tmp_path), digest)


def test_weights_that_can_run_code_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(WeightsUnreadable, match=r"pytorch_model\.bin.*convert"):
        check_weights(str(tmp_path))


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("weights", "flags"),
    [
        ("/srv/w", {"--model": "/srv/w", "--load-format": "safetensors"}),
        ("s3://bucket/w", {"--model": "s3://bucket/w", "--load-format": "runai_streamer"}),
        (
            f"owner/name@{COMMIT}",
            {"--model": "owner/name", "--revision": COMMIT, "--tokenizer-revision": COMMIT},
        ),
    ],
)
def test_vllm_runs_no_code_of_weights_whatever_the_deployment_says(
    weights: str, flags: dict[str, str]
) -> None:
    asked = deployment(
        *("--trust-remote-code", "--load-format", "pt", "--revision", "main"), weights=weights
    )
    command = VllmAdapter("cpu").launch(asked, port=1).command
    assert command.index("--no-trust-remote-code") > command.index("--trust-remote-code")
    for flag, value in flags.items():
        assert value_of(command, flag) == value


def test_stages_are_read_from_the_engines_log() -> None:
    vllm = VllmAdapter("cpu")
    line = "(Worker pid=1) INFO [cpu_model_runner.py:68] Starting to load model x..."
    assert vllm.stage(line) == "loading weights"
    assert vllm.stage("CPU KV cache size: 2,097,152 tokens") == "warming up"
    assert vllm.stage("something else") is None


def test_every_engine_of_the_contract_has_an_adapter() -> None:
    engines = adapters(otlp_endpoint=None, kv_cache_gib=1)
    assert set(engines) == {"vllm", "simulated", "external"}
    assert ExternalAdapter().launch(deployment(), port=1) is None
    assert msgspec.structs.replace(deployment(), engine="external").served_name == "some/model"
    assert deployment().served_name == "var_1"


def test_vitals_are_summed_over_engines_and_missing_is_none() -> None:
    text = (
        'vllm:num_requests_running{engine="0"} 2.0\n'
        'vllm:num_requests_running{engine="1"} 1.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.75\n'
        'vllm:kv_cache_usage_perc{engine="1"} 0.25\n'
        'vllm:generation_tokens_total{engine="0"} 10.0\n'
        'vllm:generation_tokens_created{engine="0"} 1.7e+09\n'
        'vllm:prompt_tokens_cached_total{engine="0"} 4.0\n'
        'vllm:prompt_tokens_cached_by_source_total{engine="0",source="device"} 4.0\n'
        'vllm:request_success_total{engine="0",finished_reason="stop"} 2.0\n'
        'vllm:request_success_total{engine="0",finished_reason="abort"} 1.0\n'
    )
    assert read_health(text) == EngineHealth(3, 0, 0, 10, 0.5, cached_tokens=4, requests=3)
    assert read_health("llamacpp:tokens 3\n") is None


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        ('block_size="16",kv_cache_size_tokens="200000",num_gpu_blocks="99999"', 400_000),
        ('block_size="32",kv_cache_size_tokens="None",num_gpu_blocks="6250"', 200_000),
        ('block_size="32",num_gpu_blocks="6250"', 200_000),
        ('block_size="None",num_gpu_blocks="None"', None),
    ],
)
def test_the_size_of_kv_caches_is_read_where_it_is_said(labels: str, tokens: int | None) -> None:
    text = "".join(
        f'vllm:cache_config_info{{engine="{engine}",{labels}}} 1.0\n' for engine in range(2)
    )
    assert read_kv_capacity("vllm:num_requests_running 2.0\n" + text) == tokens
    assert read_kv_capacity("vllm:num_requests_running 2.0\n") is None


@pytest.mark.parametrize(("declared", "tokens"), [(0, None), (5_000, 5_000)])
async def test_a_simulated_engine_declares_its_kv_cache(declared: int, tokens: int | None) -> None:
    settings = SimulatorSettings(port=0, models=("var_1",), kv_cache_tokens=declared)
    server = SimulatedServer(settings)
    await server.start()
    async with aiohttp.ClientSession() as session:
        probe = EngineProbe(session, f"http://127.0.0.1:{server.port}", timeout_seconds=60)
        assert await probe.kv_capacity_tokens() == tokens
        silent = EngineProbe(session, "http://127.0.0.1:9", timeout_seconds=1)
        assert await silent.kv_capacity_tokens() is None
    await server.stop()


async def test_a_probe_reads_a_simulated_engine_and_counts_its_tokens() -> None:
    server = SimulatedServer(SimulatorSettings(port=0, models=("var_1",)))
    await server.start()
    async with aiohttp.ClientSession() as session:
        probe = EngineProbe(session, f"http://127.0.0.1:{server.port}/", timeout_seconds=60)
        assert await probe.is_up()
        made = await probe.generate("var_1", tokens_max=4)
        vitals = await probe.health()
        assert vitals is not None
        assert (vitals.prompt_tokens, vitals.generation_tokens) == (made.prompt_tokens, 4)
        with pytest.raises(EngineUnresponsive, match="404"):
            await probe.generate("nobody", tokens_max=1)
    await server.stop()


async def test_a_probe_exercises_each_part_that_an_engine_declares() -> None:
    server = SimulatedServer(SimulatorSettings(port=0, models=("var_1",)))
    await server.start()
    capabilities = SimulatedAdapter().capabilities(deployment())
    every = exercises(capabilities, "var_1")
    assert [each.name for each in every] == ["sampling", "logprobs", "a grammar", "tools"]
    assert [each.name for each in exercises(["completions"], "var_1")] == ["sampling"]
    assert exercises(["embeddings"], "var_1") == ()
    async with aiohttp.ClientSession() as session:
        probe = EngineProbe(session, f"http://127.0.0.1:{server.port}/", timeout_seconds=60)
        made = [await probe.exercise(each) for each in every]
        vitals = await probe.health()
        assert vitals is not None
        assert sum(one.completion_tokens for one in made) == vitals.generation_tokens > 0
        server.script.add(Fault("error_chunk"))
        with pytest.raises(EngineUnresponsive, match="a test of tools was answered oddly"):
            await probe.exercise(exercises(capabilities, "var_1")[-1])
    await server.stop()


def _template(kind: str, chat: dict[str, Any]) -> int | None:
    """What templates of some kinds make of chats whose texts are one token each."""
    turns, tools = len(chat["messages"]), len(chat.get("tools", ()))
    if kind == "without system" and chat["messages"][0]["role"] == "system":
        return None
    if kind == "wordy":
        return 40 * turns + 300 * bool(tools)
    return 5 * turns + (200 + 20 * tools if tools else 0) + (90 if kind == "long once" else 0)


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [
        # A tool and a turn, 225 tokens in 145 bytes, of which 92 twice: only what varies is added.
        ("plain", 32),
        ("without system", 32),
        ("long once", 315 - 237 + 32),
        ("wordy", None),
    ],
)
async def test_what_a_template_adds_is_measured_or_nothing_is_said_of_it(
    kind: str, tokens: int | None
) -> None:
    class Asked(EngineProbe):
        async def count(self, model: str, chat: Any) -> int | None:
            return _template(kind, chat)

    async with aiohttp.ClientSession() as session:
        probe = Asked(session, "http://127.0.0.1:9", timeout_seconds=1)
        assert await template_tokens(probe, "var_1") == tokens


async def test_the_template_of_an_engine_that_does_not_answer_is_not_known() -> None:
    server = SimulatedServer(SimulatorSettings(port=0, models=("var_1",)))
    await server.start()
    async with aiohttp.ClientSession() as session:
        probe = EngineProbe(session, f"http://127.0.0.1:{server.port}/", timeout_seconds=60)
        assert await template_tokens(probe, "var_1") == 32
        assert await probe.count("var_1", {"messages": 3}) is None
        silent = EngineProbe(session, "http://127.0.0.1:9", timeout_seconds=1)
        assert await template_tokens(silent, "var_1") is None
    await server.stop()


async def test_a_probe_has_a_vector_made_of_an_embedder() -> None:
    server = SimulatedServer(SimulatorSettings(port=0, models=("var_1",)))
    await server.start()
    async with aiohttp.ClientSession() as session:
        probe = EngineProbe(session, f"http://127.0.0.1:{server.port}/", timeout_seconds=60)
        made = await probe.embed("var_1")
        vitals = await probe.health()
        assert vitals is not None
        assert (made.prompt_tokens, made.completion_tokens) == (vitals.prompt_tokens, 0) == (2, 0)
        server.script.add(Fault("error"))
        with pytest.raises(EngineUnresponsive, match="/v1/embeddings was answered 500"):
            await probe.embed("var_1")
    await server.stop()


def test_an_embedder_pools_caches_nothing_and_says_so() -> None:
    embedder = msgspec.structs.replace(deployment(), task="embed")
    command = VllmAdapter("cpu").launch(embedder, port=9_000).command
    assert value_of(command, "--runner") == "pooling"
    assert value_of(command, "--convert") == "embed"
    assert "--no-enable-prefix-caching" in command
    assert "--runner" not in VllmAdapter("cpu").launch(deployment(), port=9_000).command
    declared = set(VllmAdapter("cpu").capabilities(embedder))
    assert {"embeddings", "dimensions", "no_prefix_cache"} < declared
    assert not {"chat", "cache_salt", "count"} & declared
    attached = msgspec.structs.replace(
        embedder, engine="external", engine_arguments=("dimensions",)
    )
    assert ExternalAdapter().capabilities(attached) == ("embeddings", "dimensions")


async def test_a_closed_port_is_a_silent_engine() -> None:
    async with aiohttp.ClientSession() as session:
        probe = EngineProbe(session, "http://127.0.0.1:9", timeout_seconds=1)
        assert not await probe.is_up()
        with pytest.raises(EngineUnresponsive):
            await probe.health()


async def test_a_kept_connection_that_ends_as_it_is_used_is_no_failure() -> None:
    answered = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on each connection, and close it at the second."""
        nonlocal answered
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        body = b'{"usage":{"prompt_tokens":1,"completion_tokens":1}}'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        answered += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = "http://{}:{}".format(*server.sockets[0].getsockname())
    async with server, aiohttp.ClientSession() as session:
        probe = EngineProbe(session, url, timeout_seconds=5.0)
        for _ in range(3):
            await probe.generate("m", tokens_max=1)
        assert answered == 3
        server.close()
        await server.wait_closed()
        with pytest.raises(EngineUnresponsive):
            await probe.generate("m", tokens_max=1)


def test_declared_resources_become_flags_and_what_is_not_declared_stays_vllms() -> None:
    resources = ReplicaResources("H100", 2, 2, context_tokens=4_096)
    declared = msgspec.structs.replace(deployment(), resources=resources)
    command = VllmAdapter("cuda").launch(declared, port=9_000).command
    assert value_of(command, "--tensor-parallel-size") == "2"
    assert value_of(command, "--pipeline-parallel-size") == "2"
    assert value_of(command, "--max-model-len") == "4096"
    plain = VllmAdapter("cuda").launch(deployment(), port=9_000).command
    assert not {"--tensor-parallel-size", "--pipeline-parallel-size", "--max-model-len"} & {*plain}


def test_a_replica_on_gpus_needs_one_for_each_worker_and_its_share_of_their_memory() -> None:
    vllm = VllmAdapter("cuda")
    resources = ReplicaResources("H100", 2, 2, context_tokens=2_048)
    needs = vllm.needs(msgspec.structs.replace(deployment(weights=BF16), resources=resources))
    assert (needs.gpu_kind, needs.gpu_count, str(needs)) == ("H100", 4, "4 × H100")
    estimate = needs.estimate
    assert estimate is not None
    # 5 layers, 2 KV heads of 64 numbers, keys and values, 2 bytes each.
    assert estimate.token_bytes == 5 * 2 * 64 * 2 * 2
    assert estimate.least_bytes == weights_bytes(BF16) + 2_048 * estimate.token_bytes
    assert estimate.full_bytes == weights_bytes(BF16) + 7 * 2_048 * estimate.token_bytes
    assert needs.gpu_bytes == int(estimate.least_bytes / 4 / 0.92)
    # Records of earlier releases.
    old = vllm.needs(deployment("-tp", "4", "--pipeline-parallel-size=2"))
    assert (old.gpu_kind, old.gpu_count, old.gpu_bytes) == ("GPU", 8, 0)


def test_what_cannot_run_on_a_cpu_is_refused_with_what_to_change() -> None:
    vllm = VllmAdapter("cpu", kv_cache_gib=1)
    gpus = msgspec.structs.replace(deployment(), resources=ReplicaResources("H100", 2))
    with pytest.raises(ValueError, match="needs 2 × H100, and vLLM is installed for the CPU"):
        vllm.needs(gpus)
    long = ReplicaResources(context_tokens=10**6)
    with pytest.raises(ValueError, match=r"1,000,000 tokens needs 2\.4 GiB of KV cache"):
        vllm.needs(msgspec.structs.replace(deployment(weights=BF16), resources=long))
    fits = vllm.needs(deployment(weights=BF16))
    assert fits.memory_bytes == vllm.launch(deployment(weights=BF16), port=1).memory_bytes


@pytest.mark.parametrize(
    ("config", "token_bytes"),
    [
        ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}, 2 * 2 * 64 * 2),
        ({"num_hidden_layers": 2, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 2 * 576 * 2),
        (
            {
                "text_config": {
                    "num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 8,
                    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
                    "torch_dtype": "float32",
                }
            },
            2 * 8 * 4,
        ),
        ({"num_hidden_layers": 2, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 9}, 0),
    ],
)  # fmt: skip
def test_a_tokens_bytes_are_those_of_the_layers_that_keep_it(
    tmp_path: Path, config: dict[str, object], token_bytes: int
) -> None:
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    estimate = memory_estimate(deployment(weights=str(tmp_path)))
    assert estimate is not None
    assert estimate.token_bytes == token_bytes
    small = memory_estimate(deployment("--kv-cache-dtype", "fp8", weights=str(tmp_path)))
    assert small is not None
    assert small.token_bytes <= token_bytes / 2
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(WeightsUnreadable):
        memory_estimate(deployment(weights=str(tmp_path)))
