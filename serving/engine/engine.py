"""The adapter type: how to start an engine, and what it can do. Probing is in `probe.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serving.contract.records import DeploymentRecord
from serving.contract.text_guard import TextGuard

GIB = 1024**3
SPOKEN = (
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

EMBEDS = ("embeddings", "request_id", "priority")
"""The same of one that embeds, which reads what is due first: `priority` is a moment."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start. `memory_bytes` is what the machine must have free for it."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    text_guard: TextGuard | None = None
    """What its tokenizer makes of text, if that is known."""


class Engine(Protocol):
    """One kind of engine; `DeploymentRecord.engine` names it."""

    @property
    def name(self) -> str:
        """The name in a deployment's record."""

    def launch(self, deployment: DeploymentRecord, *, port: int) -> Launch | None:
        """Return the process that serves the deployment on loopback; None if others run it.

        It may write files. Raises WeightsUnreadable.
        """

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what a gateway may ask of it."""

    def grammar_judge(self, deployment: DeploymentRecord) -> tuple[str, ...] | None:
        """Return the module, with arguments, that compiles grammars as this engine does; None if
        there is none."""

    def stage(self, log_line: str) -> str | None:
        """Return the stage of loading that begins with this line of the engine's log, if any."""
