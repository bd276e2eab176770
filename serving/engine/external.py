"""Replicas that somebody else runs: any OpenAI-compatible server, attached by URL."""

from serving.contract.records import DeploymentRecord
from serving.engine.engine import Launch


class External:
    """llama.cpp, SGLang, TensorRT-LLM, Ollama, another vLLM: probed, never started.

    The deployment's `weights` is the model's name on that server.
    """

    name = "external"

    def launch(self, deployment: DeploymentRecord, *, port: int) -> Launch | None:
        """Return None: there is nothing to start."""
        return None

    def served_name(self, deployment: DeploymentRecord) -> str:
        """Return the model's name on the server."""
        return deployment.weights

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what every OpenAI-compatible server does; `engine_arguments` name the rest."""
        return ("chat", "completions", "stream", *deployment.engine_arguments)

    def stage(self, log_line: str) -> str | None:
        """Return None: its log is elsewhere."""
        return None
