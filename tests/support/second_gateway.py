"""A second gateway beside a running stack, as a second machine would run it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.local import readiness
from tests.support.environment import free_port_base
from tests.support.load import wait_until
from tests.support.stack import PENSTOCK, Stack


@dataclass(frozen=True)
class SecondGateway:
    """Where it listens, and which process it is."""

    api_base: str
    pid: int


@contextmanager
def beside(stack: Stack, folder: Path) -> Iterator[SecondGateway]:
    """Run one more gateway on the stack's control plane and fleet."""
    base = free_port_base(2)
    variables = {
        **stack.variables,
        "PENSTOCK_GATEWAY_DIR": str(folder),
        "PENSTOCK_GATEWAY_PORT": str(base),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(base + 1),
    }
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen([PENSTOCK, "gateway"], env=variables, stdout=log, stderr=log)
    try:
        wait_until(
            lambda: readiness.answers(base + 1, "/readyz"),
            timeout_seconds=30,
            what="the second gateway is ready",
        )
        yield SecondGateway(f"http://127.0.0.1:{base}/v1", process.pid)
    finally:
        process.terminate()
        process.wait(timeout=40)
