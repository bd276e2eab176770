"""The remarks of `penstock check --deploy` on a fleet's Ray cluster."""

import asyncio
from collections.abc import Mapping

from infra.local.config import LocalError
from serving.contract.environment import ConfigError, switch, text
from serving.contract.records import DEFAULT_FLEET
from serving.fleet.ray_client import RayClient, RayUnreachable
from serving.fleet.ray_cluster import refusal, warnings

DESCRIBE_SECONDS = 30.0


def cluster_problems(environ: Mapping[str, str]) -> list[str]:
    """Return what the settings of the cluster that RAY_ADDRESS names lack, a line each.

    Raises LocalError where the cluster does not answer, or the environment names none.
    """
    try:
        address = text(environ, "RAY_ADDRESS")
        without_token = switch(environ, "PENSTOCK_FLEET_RAY_WITHOUT_TOKEN")
        return asyncio.run(
            _problems(text(environ, "PENSTOCK_FLEET_ID", DEFAULT_FLEET), without_token)
        )
    except ConfigError as error:
        raise LocalError(str(error)) from error
    except RayUnreachable as error:
        raise LocalError(f"Ray at {address} does not answer: {error}") from error


async def _problems(fleet_id: str, without_token: bool) -> list[str]:
    client = RayClient(fleet_id)
    try:
        reply = await client.call("describe", DESCRIBE_SECONDS)
    finally:
        await client.close()
    if reply.problem:
        raise RayUnreachable(reply.problem)
    refused = refusal(reply.nodes, without_token=without_token)
    return [*filter(None, [refused]), *warnings(reply.nodes)]
