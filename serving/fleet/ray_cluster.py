"""What a fleet asks of a Ray cluster before it uses it: the same versions on each node, access by a
token, and the settings without which engines end when Ray's head is away."""

import platform
from collections.abc import Iterable
from importlib.metadata import version

from serving.engine.adapter import ReplicaNeeds
from serving.fleet.ray_agent import NodeDescription

AUTH, REDIS = "RAY_AUTH_MODE", "RAY_REDIS_ADDRESS"
RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
RECONNECT_SECONDS_MIN = 86_400
ANY_GPU = "GPU"
KIND_SHARE = 0.001
"""Of a node's `accelerator_type:KIND`, of which Ray gives each node 1."""
CPUS = 1.0
"""Of a replica's bundle: one that asked for none could not be counted."""


def refusal(nodes: Iterable[NodeDescription], *, without_token: bool) -> str:
    """Return why a cluster must not be used, empty if it may."""
    python, penstock = platform.python_version(), version("penstock")
    for node in nodes:
        if (node.python, node.penstock) != (python, penstock):
            return (
                f"{node.address} has Penstock {node.penstock} on Python {node.python}, the fleet"
                f" {penstock} on {python}: install the same"
            )
        if node.settings.get(AUTH) != "token" and not without_token:
            return (
                f"{node.address} runs without {AUTH}=token, so that whoever reaches it runs code"
                " there; set it, or PENSTOCK_FLEET_RAY_WITHOUT_TOKEN=1"
            )
    return ""


def warnings(nodes: Iterable[NodeDescription]) -> list[str]:
    """Return what is missing for engines to outlive Ray's head, by the settings' names."""
    found = []
    for node in nodes:
        if node.is_head and not node.settings.get(REDIS):
            found.append(
                f"{REDIS} is not set on the head, {node.address}: a head that starts again knows of"
                " no replica"
            )
        if not is_patient(node.settings.get(RECONNECT, "")):
            found.append(
                f"{RECONNECT} is below {RECONNECT_SECONDS_MIN} on {node.address}: its engines end"
                " 60 s after the head, or as soon as the setting says"
            )
    return found


def is_patient(seconds: str) -> bool:
    """Tell whether a node outlives its head for a day."""
    return seconds.isdigit() and int(seconds) >= RECONNECT_SECONDS_MIN


def bundle(needs: ReplicaNeeds) -> dict[str, float]:
    """Return the resources of a replica's bundle as Ray names them; memory is in bytes."""
    kind = f"accelerator_type:{needs.gpu_kind}" if needs.gpu_kind not in ("", ANY_GPU) else ""
    wanted = {
        "CPU": CPUS,
        "GPU": float(needs.gpu_count),
        "memory": float(needs.memory_bytes),
        kind: KIND_SHARE if kind and needs.gpu_count else 0.0,
    }
    return {name: amount for name, amount in wanted.items() if amount}
