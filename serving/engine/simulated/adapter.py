"""Starting the simulated engine as a replica."""

import sys

from serving.contract.records import DeploymentRecord
from serving.engine.engine import Launch

MEMORY_BYTES = 128 * 1024**2


class Simulated:
    """The simulated engine; the deployment's `engine_arguments` set its speed and its faults."""

    name = "simulated"

    def launch(self, deployment: DeploymentRecord, *, port: int) -> Launch:
        """Return the process that serves the deployment on loopback."""
        command = (
            *(sys.executable, "-m", "serving.engine.simulated"),
            *("--slots", str(deployment.slots)),
            *deployment.engine_arguments,
            *("--served-model-name", deployment.variant_id),
            *("--host", "127.0.0.1"),
            *("--port", str(port)),
        )
        return Launch(command, memory_bytes=MEMORY_BYTES)

    def served_name(self, deployment: DeploymentRecord) -> str:
        """Return the variant's id."""
        return deployment.variant_id

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what the simulation speaks."""
        return ("chat", "completions", "stream", "cache_salt")

    def stage(self, log_line: str) -> str | None:
        """Return the stage a line of the simulation's log begins."""
        return "loading weights" if "loading for" in log_line else None
