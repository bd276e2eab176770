"""Waiting for the engine: for the model that was asked for, whatever else loads beside it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from infra.local import health
from infra.local.config import StartFailed
from infra.local.progress import ProgressStep
from serving.contract.replica import ReplicaRecord
from tests.fixtures.catalog import replica

pytestmark = pytest.mark.unit
MODEL = "dep_model"
EMBEDDER = "dep_embedder"


def scripted(
    monkeypatch: pytest.MonkeyPatch, *answers: list[ReplicaRecord] | None
) -> Iterator[list[ReplicaRecord] | None]:
    """Let the fleet tell one answer after another; return those that nobody read."""
    left = iter(answers)
    monkeypatch.setattr(health, "list_replicas", lambda port, credential: next(left))
    monkeypatch.setattr(health, "REPLICA_POLL_SECONDS", 0)
    return left


def record(deployment_id: str, state: str) -> ReplicaRecord:
    known = replica("http://127.0.0.1:1")
    later = datetime.now(UTC) + timedelta(minutes=1)  # failures from before the start do not count
    return replace(known, deployment_id=deployment_id, state=state, started_at=later)


def test_another_models_engine_is_not_the_one_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = record(EMBEDDER, "ready")
    left = scripted(
        monkeypatch,
        None,
        [embedder],
        [embedder, record(MODEL, "loading")],
        [embedder, record(MODEL, "ready")],
        [],
    )
    health.wait_for_replica(1, "credential", ProgressStep("engine"), deployment_id=MODEL)
    assert list(left) == [[]]


@pytest.mark.parametrize("state", ["ready", "asleep"])
def test_where_the_model_is_stopped_any_engine_will_do(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    left = scripted(monkeypatch, [record(EMBEDDER, state)], [])
    health.wait_for_replica(1, "credential", ProgressStep("engine"), deployment_id=None)
    assert list(left) == [[]]


def test_only_its_own_failures_end_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [record(EMBEDDER, "failed"), record(EMBEDDER, "failed")]
    scripted(monkeypatch, failed, [*failed, record(MODEL, "ready")])
    health.wait_for_replica(1, "credential", ProgressStep("engine"), deployment_id=MODEL)
    scripted(monkeypatch, [record(MODEL, "failed"), record(MODEL, "failed")])
    with pytest.raises(StartFailed, match="the engine failed 2 times"):
        health.wait_for_replica(1, "credential", ProgressStep("engine"), deployment_id=MODEL)
