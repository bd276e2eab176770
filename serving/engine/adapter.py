"""An engine as the fleet starts it and gateways ask it, and the adapter of external servers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serving.contract.deployment_plan import MemoryEstimate
from serving.contract.records import DeploymentRecord
from serving.contract.replica import CACHE_SALT
from serving.contract.text_guard import TextGuard

GIB = 1024**3
GENERATION_CAPABILITIES = (
    "chat",
    "completions",
    "stream",
    "cache_salt",
    "continuous_usage",
    "request_id",
    "stream_interval",
    "token_ids",
    "count",
)
"""What vLLM's HTTP does for every model: beyond OpenAI's it salts its prefix cache, states usage
in every chunk, repeats our id in its own, gathers as many tokens in a chunk as one asks for, sends
a chunk for each token with its id, and counts the tokens of a prompt."""

EMBEDDING_CAPABILITIES = ("embeddings", "request_id", "priority")
"""The same of one that embeds, which reads what is due first: `priority` is a moment."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A process to start. `memory_bytes` is what the machine must have free for it."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    text_guard: TextGuard | None = None
    """What its tokenizer makes of text, if that is known."""


@dataclass(frozen=True, slots=True)
class ReplicaNeeds:
    """What a host gives a replica: whole GPUs of a kind, and free memory of its own.

    `gpu_bytes` is what each GPU must have in all, 0 where that is not known. `estimate` is what the
    memory goes to, None where the weights cannot be read here.
    """

    memory_bytes: int = 0
    gpu_kind: str = ""
    gpu_count: int = 0
    gpu_bytes: int = 0
    estimate: MemoryEstimate | None = None

    def __str__(self) -> str:
        """Return the needs in words, such as "2 × H100"."""
        if self.gpu_count:
            return f"{self.gpu_count} × {self.gpu_kind}"
        return f"{self.memory_bytes / GIB:.1f} GiB of memory"


class EngineAdapter(Protocol):
    """One kind of engine; `DeploymentRecord.engine` names it."""

    @property
    def name(self) -> str:
        """The name in a deployment's record."""

    def launch(self, deployment: DeploymentRecord, *, port: int | str) -> LaunchSpec | None:
        """Return the process that serves the deployment on loopback; None if others run it.

        `port` may be a placeholder, an argument of its own, that is filled in where the process
        starts. It may write files. Raises WeightsUnreadable.
        """

    def needs(self, deployment: DeploymentRecord) -> ReplicaNeeds:
        """Return what a replica takes of the host that it is started on.

        Raises WeightsUnreadable, and ValueError for a deployment that could not run on any.
        """

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what a gateway may ask of it."""

    def grammar_compiler(self, deployment: DeploymentRecord) -> tuple[str, ...] | None:
        """Return the module, with arguments, that compiles grammars as this engine does; None if
        there is none."""

    def stage(self, log_line: str) -> str | None:
        """Return the stage of loading that begins with this line of the engine's log, if any."""


UNDECLARED = frozenset({"request_id", "count", "priority", CACHE_SALT})
"""What promises something, so that leaving it out would do harm."""


class ExternalAdapter:
    """llama.cpp, SGLang, TensorRT-LLM, Ollama, another vLLM: probed, never started.

    The deployment's `weights` is the model's name on that server.
    """

    name = "external"

    def launch(self, deployment: DeploymentRecord, *, port: int | str) -> LaunchSpec | None:
        """Return None: there is nothing to start."""
        return None

    def needs(self, deployment: DeploymentRecord) -> ReplicaNeeds:
        """Return nothing: it runs elsewhere."""
        return ReplicaNeeds()

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what is asked of every such server, most of which leave out what they do not know.
        `engine_arguments` declare the rest: see `serving/contract/replica.py`."""
        spoken = EMBEDDING_CAPABILITIES if deployment.task == "embed" else GENERATION_CAPABILITIES
        asked = (name for name in spoken if name not in UNDECLARED)
        return (*asked, *deployment.engine_arguments)

    def grammar_compiler(self, deployment: DeploymentRecord) -> tuple[str, ...] | None:
        """Return None: what it compiles with is not known."""
        return None

    def stage(self, log_line: str) -> str | None:
        """Return None: its log is elsewhere."""
        return None
