"""Declared resources of variants: what is published of them, what contradicts them, and the plans
of fleets that are shown and held to before anything starts."""

import importlib
from types import SimpleNamespace

import pytest

from control.catalog import plans, services
from control.catalog.models import Deployment
from control.errors import Conflict, InvalidValue
from control.feed.selectors import last_record
from serving.contract.codec import decode
from serving.contract.deployment_plan import DeploymentPlan, MemoryEstimate, Rollout
from serving.contract.records import DeploymentRecord
from serving.contract.resources import ReplicaResources
from tests.fixtures.operator_tokens import bearer_client, make_operator, make_token
from tests.fixtures.organizations import OPERATOR, make_deployment, make_model, make_variant

ESTIMATE = MemoryEstimate(2 * 1024**3, 1024, 32_768, 4)


@pytest.fixture
def deployment(db: None) -> Deployment:
    return make_deployment(make_variant(make_model()), replicas_min=1)


def planned(
    monkeypatch: pytest.MonkeyPatch, deployment: Deployment, rollout: Rollout = "rolling"
) -> None:
    """Have the fleet say how the deployment would be rolled out."""
    plan = DeploymentPlan(deployment.id, "2 × H100", rollout, "requests wait 0 s", "", ESTIMATE)
    plans.cache.clear()
    monkeypatch.setattr(plans, "_plans", lambda _: (plan,))


def resources(deployment: Deployment) -> ReplicaResources:
    record = last_record("deployment", deployment.id)
    assert record is not None
    return decode(record.encode(), DeploymentRecord).resources


def test_deployments_carry_the_resources_that_their_variant_declares(
    deployment: Deployment,
) -> None:
    variant = deployment.variant
    assert resources(deployment) == ReplicaResources(context_tokens=variant.context_tokens)
    changes = {"accelerator": "H100", "tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    services.update_variant(actor=OPERATOR, variant=variant, changes=changes)
    found = resources(deployment)
    assert (found.accelerators, found.accelerator_count) == ("4 × H100", 4)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("engine_arguments", ["--tensor-parallel-size", "2"], "Set tensor_parallel_size"),
        ("engine_arguments", ["-tp=2"], "Set tensor_parallel_size"),
        ("engine_arguments", ["--pipeline_parallel_size=2"], "Set pipeline_parallel_size"),
        ("engine_arguments", ["--max-model-len", "9"], "Set context_tokens"),
        ("engine_arguments", ["--max-num-seqs", "9"], "Set slots of the deployment"),
        ("accelerator", "MIG 1g.10gb", "Only whole GPUs"),
        ("accelerator", "H100; rm", "Name words of the GPU's name"),
        ("tensor_parallel_size", 0, "greater than or equal to 1"),
    ],
)
def test_what_contradicts_a_declaration_is_refused(
    deployment: Deployment, field: str, value: object, words: str
) -> None:
    with pytest.raises(InvalidValue, match=words):
        services.update_variant(actor=OPERATOR, variant=deployment.variant, changes={field: value})


def test_a_change_that_would_fail_requests_is_refused_beforehand(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(**changes: object) -> Deployment:
        return services.update_deployment(actor=OPERATOR, deployment=deployment, changes=changes)

    planned(monkeypatch, deployment, "refused")
    with pytest.raises(Conflict, match="cannot be replaced now: requests wait 0 s"):
        change(slots=9)
    with pytest.raises(Conflict):
        services.update_variant(
            actor=OPERATOR, variant=deployment.variant, changes={"tensor_parallel_size": 2}
        )
    change(hourly_cost_nanos=5)
    change(slots=9, wake_seconds=500.0, queue_seconds=500.0)
    change(slots=10, replicas_min=0)
    planned(monkeypatch, deployment, "recreate")
    change(slots=11, replicas_min=1)


def test_the_plan_is_shown_before_anything_starts(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch, deployment)
    client = bearer_client(make_token(make_operator())[1])
    found = client.get(f"/api/v1/admin/deployments/{deployment.id}").json()["plan"]
    assert (found["needs"], found["rollout"], found["room"]) == ("2 × H100", "rolling", "")
    assert found["estimate"]["least_bytes"] == 2 * 1024**3 + 1024 * 32_768
    [needs, estimate, room, rollout] = plans.plan_lines(plans.cache.get()[deployment.id])
    assert needs == "A replica needs 2 × H100."
    assert "Weights 2.0 GiB" in estimate
    assert "32,768 tokens 2.0 GiB, of 4 such sequences 2.1 GiB" in estimate
    assert room == "There is room for one more replica."
    assert rollout.startswith("Changes replace replicas without interruption.")


def test_arguments_that_were_declared_before_move_into_the_fields() -> None:
    migration = importlib.import_module("control.catalog.migrations.0006_resources")
    variant = SimpleNamespace(
        engine_arguments=["-tp", "4", "--seed", "1", "--max-model-len=9"],
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
    )
    assert migration.take_flags(variant, variant)
    assert (variant.engine_arguments, variant.tensor_parallel_size) == (["--seed", "1"], 4)
    row = SimpleNamespace(engine_arguments=["--pipeline_parallel_size=2"])
    assert migration.take_flags(row, variant)
    assert (row.engine_arguments, variant.pipeline_parallel_size) == ([], 2)
    assert not migration.take_flags(row, variant)
