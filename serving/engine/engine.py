"""The adapter type: how to start an engine, and what it can do. Probing is in `probe.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serving.contract.records import DeploymentRecord

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start. `memory_bytes` is what the machine must have free for it."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0


class Engine(Protocol):
    """One kind of engine; `DeploymentRecord.engine` names it."""

    @property
    def name(self) -> str:
        """The name in a deployment's record."""

    def launch(self, deployment: DeploymentRecord, *, port: int) -> Launch | None:
        """Return the process that serves the deployment on loopback; None if others run it."""

    def served_name(self, deployment: DeploymentRecord) -> str:
        """Return what the engine wants in a request's `model`."""

    def capabilities(self, deployment: DeploymentRecord) -> tuple[str, ...]:
        """Return what a gateway may ask of it."""

    def stage(self, log_line: str) -> str | None:
        """Return the stage of loading that begins with this line of the engine's log, if any."""
