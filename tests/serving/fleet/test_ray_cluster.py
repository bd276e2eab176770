"""What is read of a Ray cluster's tables and settings. The tables are as Ray 2.60 returns them."""

import platform
from importlib.metadata import version
from typing import Any

import pytest

from serving.engine.adapter import GIB, ReplicaNeeds
from serving.fleet.ray_agent import (
    NodeDescription,
    group_names,
    is_without_room,
    missing,
    namespace_of,
)
from serving.fleet.ray_cluster import bundle, refusal, warnings

pytestmark = pytest.mark.unit

LASTING = {
    "RAY_AUTH_MODE": "token",
    "RAY_REDIS_ADDRESS": "set",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
}


def node(*, is_head: bool = True, settings: dict[str, str] | None = None, **other: Any) -> Any:
    fields = {"address": "10.0.0.1", "python": platform.python_version()} | other
    fields.setdefault("penstock", version("penstock"))
    return NodeDescription(is_head=is_head, settings=LASTING | (settings or {}), **fields)


def group(name: str, state: str, scheduling: str = "", **bundle: float) -> dict[str, Any]:
    return {
        "placement_group_id": "d0c1a5",
        "name": name,
        "bundles": {0: bundle},
        "bundles_to_node_id": {0: ""},
        "strategy": "PACK",
        "state": state,
        "stats": {"scheduling_attempt": 1, "scheduling_state": scheduling},
    }


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (node(), ""),
        (node(settings={"RAY_AUTH_MODE": ""}), "runs without RAY_AUTH_MODE=token"),
        (node(penstock="0.0.1"), "has Penstock 0.0.1"),
        (node(python="3.99.0"), "on Python 3.99.0"),
    ],
)
def test_a_cluster_of_other_versions_or_without_token_is_refused(found: Any, words: str) -> None:
    told = refusal([node(), found], without_token=False)
    assert words in told
    assert bool(told) == bool(words)


def test_an_operator_may_use_a_cluster_without_token() -> None:
    assert not refusal([node(settings={"RAY_AUTH_MODE": ""})], without_token=True)


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (node(), []),
        (node(settings={"RAY_REDIS_ADDRESS": ""}), ["RAY_REDIS_ADDRESS"]),
        (node(is_head=False, settings={"RAY_REDIS_ADDRESS": ""}), []),
        (
            node(is_head=False, settings={"RAY_gcs_rpc_server_reconnect_timeout_s": "600"}),
            ["RAY_gcs_rpc_server_reconnect_timeout_s"],
        ),
        (
            node(settings=dict.fromkeys(LASTING, "")),
            ["RAY_REDIS_ADDRESS", "RAY_gcs_rpc_server_reconnect_timeout_s"],
        ),
    ],
)
def test_what_ends_engines_with_the_head_is_named(found: Any, names: list[str]) -> None:
    assert [words.partition(" ")[0] for words in warnings([found])] == names


def test_a_bundle_has_what_a_replica_needs() -> None:
    gpus = ReplicaNeeds(memory_bytes=2 * GIB, gpu_kind="H100", gpu_count=2)
    assert bundle(gpus) == {
        "CPU": 1.0,
        "GPU": 2.0,
        "memory": 2.0 * GIB,
        "accelerator_type:H100": 0.001,
    }
    assert bundle(ReplicaNeeds()) == {"CPU": 1.0}
    assert "accelerator_type:GPU" not in bundle(ReplicaNeeds(gpu_kind="GPU", gpu_count=1))


def test_groups_of_the_fleet_alone_are_its_own() -> None:
    table = {
        "1": group("penstock-default/r1", "CREATED"),
        "2": group("penstock-default/r2", "REMOVED"),
        "3": group("penstock-default2/r3", "CREATED"),
        "4": group("", "PENDING"),
        "5": group("penstock-default/r5", "RESCHEDULING"),
    }
    assert group_names(table, f"{namespace_of('default')}/") == ["r1", "r5"]


@pytest.mark.parametrize(
    ("state", "scheduling", "expected"),
    [
        ("PENDING", "NO_RESOURCES", True),
        ("PENDING", "INFEASIBLE", True),
        ("PENDING", "QUEUED", False),
        ("CREATED", "FINISHED", False),
    ],
)
def test_whether_there_is_room_is_read(state: str, scheduling: str, expected: bool) -> None:
    assert is_without_room(group("penstock-default/r1", state, scheduling)) == expected


def test_what_is_missing_is_said() -> None:
    row = group("penstock-default/r1", "PENDING", "NO_RESOURCES", CPU=1.0, GPU=2.0)
    told = missing(row, [{"Alive": True}, {"Alive": False}, {"Alive": True}])
    assert told == "no room: needs 1 CPU, 2 GPU on one node, and none of 2 has it free"
