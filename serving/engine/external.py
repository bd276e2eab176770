"""Replicas that somebody else runs: any OpenAI-compatible server, attached by URL."""

from serving.contract.records import DeploymentRecord
from serving.contract.replica import CACHE_SALT
from serving.engine.engine import EMBEDS, SPOKEN, Launch

UNDECLARED = frozenset({"request_id", "count", "priority", CACHE_SALT})
"""What promises something, so that leaving it out would do harm."""


class External:
    """llama.cpp, SGLang, TensorRT-LLM, Ollama, another vLLM: probed, never started.

    The deployment's `weights` is the model's name on that server.
    """

    name = "external"

    def launch(self, deployment: DeploymentRecord, *, port: int) -> Launch | None:
        """Return None: there is nothing to start."""
        return None

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what is asked of every such server, most of which leave out what they do not know.
        `engine_arguments` declare the rest: see `serving/contract/replica.py`."""
        spoken = EMBEDS if deployment.task == "embed" else SPOKEN
        asked = (name for name in spoken if name not in UNDECLARED)
        return (*asked, *deployment.engine_arguments)

    def grammar_judge(self, deployment: DeploymentRecord) -> tuple[str, ...] | None:
        """Return None: what it compiles with is not known."""
        return None

    def stage(self, log_line: str) -> str | None:
        """Return None: its log is elsewhere."""
        return None
