"""Starting the simulated engine as a replica."""

import sys

from serving.contract.prompt import BYTE_TOKENS
from serving.contract.records import DeploymentRecord
from serving.contract.replica import FEATURES, NO_PREFIX_CACHE, STRUCTURAL_TAG
from serving.contract.text_guard import TextGuard
from serving.engine.adapter import (
    EMBEDDING_CAPABILITIES,
    GENERATION_CAPABILITIES,
    LaunchSpec,
    ReplicaNeeds,
)

MEMORY_BYTES = 128 * 1024**2


class SimulatedAdapter:
    """The simulated engine; the deployment's `engine_arguments` set its speed and its faults."""

    name = "simulated"

    def launch(self, deployment: DeploymentRecord, *, port: int | str) -> LaunchSpec:
        """Return the process that serves the deployment on loopback."""
        command = (
            *(sys.executable, "-m", "serving.engine.simulated"),
            *("--slots", str(deployment.slots)),
            *deployment.engine_arguments,
            *("--served-model-name", deployment.variant_id),
            *("--host", "127.0.0.1"),
            *("--port", str(port)),
        )
        # It has no control tokens.
        return LaunchSpec(command, memory_bytes=MEMORY_BYTES, text_guard=TextGuard())

    def needs(self, deployment: DeploymentRecord) -> ReplicaNeeds:
        """Return its memory, and the GPUs that are declared: it only holds them."""
        resources = deployment.resources
        return ReplicaNeeds(MEMORY_BYTES, resources.accelerator, resources.accelerator_count)

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what the simulation speaks; features are asked of it as of vLLM."""
        if deployment.task == "embed":
            return (*EMBEDDING_CAPABILITIES, NO_PREFIX_CACHE, "dimensions", BYTE_TOKENS)
        return (*GENERATION_CAPABILITIES, STRUCTURAL_TAG, *FEATURES, BYTE_TOKENS)

    def grammar_compiler(self, deployment: DeploymentRecord) -> tuple[str, ...] | None:
        """Return None: it compiles nothing."""
        return None

    def stage(self, log_line: str) -> str | None:
        """Return the stage a line of the simulation's log begins."""
        return "loading weights" if "loading for" in log_line else None
