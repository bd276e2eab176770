"""A gateway as a process of its own, before a control and a fleet that a test names."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.support import catalog
from tests.support.environment import free_port
from tests.support.gateway import CREDENTIAL
from tests.support.gateway_processes import until_ready


@dataclass(frozen=True)
class GatewayProcess:
    """Which process it is, and where it listens."""

    pid: int
    url: str
    operator_url: str

    async def metric(self, session: aiohttp.ClientSession, name: str) -> float:
        """Return the sum of all samples of a metric."""
        async with session.get(f"{self.operator_url}/metrics") as reply:
            families = text_string_to_metric_families(await reply.text())
        return sum(
            sample.value for family in families for sample in family.samples if sample.name == name
        )


@asynccontextmanager
async def gateway_process(
    folder: Path,
    control_url: str,
    *,
    fleet_url: str | None = None,
    credential: str = CREDENTIAL,
    port: int | None = None,
) -> AsyncIterator[GatewayProcess]:
    """Run `python -m serving.gateway` until it is ready; control is the fleet too unless told."""
    port, operator_port = port or free_port(), free_port()
    environment = os.environ | {
        "PENSTOCK_GATEWAY_PORT": str(port),
        "PENSTOCK_GATEWAY_OPERATOR_PORT": str(operator_port),
        "PENSTOCK_GATEWAY_DIR": str(folder),
        "PENSTOCK_CONTROL_URL": control_url,
        "PENSTOCK_FLEET_URL": fleet_url or control_url,
        "PENSTOCK_INTERNAL_CREDENTIAL": credential,
        "PENSTOCK_KEY_PEPPER": catalog.PEPPER,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "serving.gateway", env=environment
    )
    operator_url = f"http://127.0.0.1:{operator_port}"
    try:
        await until_ready(operator_port)
        yield GatewayProcess(process.pid, f"http://127.0.0.1:{port}", operator_url)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
