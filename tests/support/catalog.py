"""Contract records for tests: one organization with a key, one model with a price."""

from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import msgspec

from serving.contract.budget import balance_budget_id
from serving.contract.capabilities import FEATURES
from serving.contract.key import digest, make_secret
from serving.contract.records import (
    ApiKeyRecord,
    ContractPriceRecord,
    DeploymentRecord,
    ModelRecord,
    OrganizationRecord,
    PriceRecord,
    ProjectRecord,
    Timeouts,
)
from serving.contract.replica import ReplicaRecord
from serving.engine.engine import SPOKEN
from tests.support.fake_control import FakeControl

PEPPER = "test-key-pepper-0123456789"
START = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUTS = Timeouts(connect_seconds=1.0, first_byte_seconds=5.0, gap_seconds=5.0)


@dataclass(frozen=True)
class Tenant:
    """An organization's records and the secret of its key."""

    secret: str
    organization: OrganizationRecord
    project: ProjectRecord
    key: ApiKeyRecord


def tenant(name: str = "a", **key_fields: object) -> Tenant:
    """Return the records of an organization called `org_<name>`."""
    secret = make_secret(Random(name).choice)
    key = ApiKeyRecord(
        key_id=f"key_{name}",
        digest=digest(secret, PEPPER.encode()),
        organization_id=f"org_{name}",
        project_id=f"proj_{name}",
        budget_ids=(),
        **key_fields,  # type: ignore[arg-type]
    )
    balance = (balance_budget_id(f"org_{name}"),)
    organization = OrganizationRecord(f"org_{name}", "active", balance, f"salt_{name}")
    return Tenant(secret, organization, ProjectRecord(f"proj_{name}", f"org_{name}", ()), key)


def model(variant: str = "var_demo", name: str = "demo", **fields: object) -> ModelRecord:
    """Return a model record with a context of 512."""
    return ModelRecord(
        variant_id=variant,
        model_id="mdl_demo",
        public_id=name,
        aliases=(f"{name}:bf16",),
        precision="bf16",
        context_tokens=512,
        output_tokens_max=256,
        vocabulary_size=1_024,
        created_at=START,
        **fields,  # type: ignore[arg-type]
    )


def embedder(variant: str = "var_embed", name: str = "demo-embed", **fields: object) -> ModelRecord:
    """Return the record of a model whose vectors have 64 numbers."""
    return model(variant, name, **{"task": "embed", "dimensions": 64} | fields)


def price(variant: str = "var_demo", **fields: object) -> PriceRecord:
    """Return prices of 150, 75 and 600 nanos a token, unless `fields` say otherwise."""
    made = PriceRecord(
        f"price_{variant}", variant, "default", 150_000_000, 75_000_000, 600_000_000, START
    )
    return msgspec.structs.replace(made, **fields)


def contract_price(organization_id: str = "org_a", **fields: object) -> ContractPriceRecord:
    """Return an organization's own prices of 100, 50 and 400 nanos a token."""
    own = {
        "price_id": f"price_{organization_id}",
        "input_nanos": 100_000_000,
        "cached_input_nanos": 50_000_000,
        "output_nanos": 400_000_000,
    }
    listed = msgspec.structs.asdict(price()) | own | fields
    return ContractPriceRecord(**listed, organization_id=organization_id)  # type: ignore[arg-type]


def deployment(variant: str = "var_demo", **fields: object) -> DeploymentRecord:
    """Return a deployment of the variant."""
    fields = {"timeouts": TIMEOUTS} | fields
    return DeploymentRecord(f"dep_{variant}", variant, "simulated", "w", 1, 1, **fields)  # type: ignore[arg-type]


def replica(
    url: str,
    number: int = 1,
    variant: str = "var_demo",
    slots: int = 8,
    features: tuple[str, ...] = FEATURES,
) -> ReplicaRecord:
    """Return a ready replica at `url`."""
    return ReplicaRecord(
        f"rep_{number}",
        f"dep_{variant}",
        url,
        "ready",
        slots,
        START,
        "simulated",
        (*SPOKEN, *features),
    )


def publish(control: FakeControl, *tenants: Tenant, credit_nanos: int = 10**12) -> None:
    """Publish the tenants with credit, and one model with its price and deployment."""
    for one in tenants:
        control.feed.publish("organization", one.organization.organization_id, one.organization)
        control.feed.publish("project", one.project.project_id, one.project)
        control.feed.publish("api_key", one.key.key_id, one.key)
        for budget_id in one.organization.budget_ids:
            control.billing.limits[budget_id] = credit_nanos
    control.feed.publish("model", "var_demo", model())
    control.feed.publish("price", "price_var_demo", price())
    control.feed.publish("deployment", "dep_var_demo", deployment())
