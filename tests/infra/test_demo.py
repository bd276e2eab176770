"""`python -m infra.demo`: a fresh platform, however often it is asked for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from control.accounts.models import User
from control.api_keys.models import ApiKey
from control.catalog.models import Deployment, Model, Variant
from control.feed.selectors import last_version
from control.organizations.models import Organization
from control.pricing.models import PriceBook
from control.pricing.selectors import prices_in_force
from infra.demo.__main__ import main
from serving.contract.api_key import is_well_formed
from serving.engine.weights import weights_digest
from tests.fixtures.organizations import quality_report

pytestmark = pytest.mark.django_db
Seed = Callable[..., dict[str, Any]]
CONFIG = {
    "dtype": "bfloat16",
    "max_position_embeddings": 2048,
    "vocab_size": 1024,
    "hidden_size": 256,
}


def write_variant(folder: Path, report: bool = True, **config: Any) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]}}).encode()
    tensors = len(header).to_bytes(8, "little") + header + bytes(64)
    (folder / "model.safetensors").write_bytes(tensors)
    if report:
        (folder / "quality.json").write_text(json.dumps(quality_report()))


@pytest.fixture
def family(tmp_path: Path) -> Path:
    for name in ("bf16", "int8", "int4"):
        write_variant(tmp_path / name)
    return tmp_path


@pytest.fixture
def seed(capsys: pytest.CaptureFixture[str]) -> Seed:
    """Seed the platform as a person at the terminal would; return what was printed."""

    def run(weights: object, **options: Any) -> dict[str, Any]:
        defaults = {
            "weights": weights,
            "model_id": "penstock-demo",
            "engine": "simulated",
            "owner_password": "owner-pass",
            "operator_password": "operator-pass",
        }
        main(
            [f"--{name.replace('_', '-')}={value}" for name, value in (defaults | options).items()]
        )
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def test_the_demo_model_is_seeded_with_three_variants(seed: Seed, family: Path) -> None:
    seed(family)
    model = Model.objects.get(public_id="penstock-demo")
    replicas = {each.variant.precision: each.replicas_min for each in Deployment.objects.all()}
    assert model.default_variant is not None
    assert model.default_variant.precision == "bf16"
    assert replicas == {"bf16": 1, "int8": 0, "int4": 0}
    assert Variant.objects.filter(published_at__isnull=False).count() == 3
    assert model.default_variant.parameter_count == 32


def test_quantized_variants_cost_less(seed: Seed, family: Path) -> None:
    seed(family)
    found = prices_in_force(None, timezone.now()).values()
    outputs = {each.variant.precision: each.output_nanos for each in found}
    assert outputs["bf16"] == 600_000_000  # $0.60 per million
    assert outputs["bf16"] > outputs["int8"] > outputs["int4"]


def test_a_stranger_gets_a_key_and_two_logins(seed: Seed, family: Path) -> None:
    answer = seed(family)
    assert is_well_formed(answer["api_key"])
    assert answer["organization_id"] == Organization.objects.get().id
    assert User.objects.get(email="owner@penstock.localhost").check_password("owner-pass")
    assert User.objects.get(email="operator@penstock.localhost").operator_role == "owner"


def test_seeding_again_changes_nothing(seed: Seed, family: Path) -> None:
    first = seed(family)
    version = last_version()
    assert seed(family) == first | {"api_key": None}
    assert last_version() == version
    assert (ApiKey.objects.count(), PriceBook.objects.count()) == (1, 1)


def test_the_deployment_named_is_the_models_until_an_operator_stops_it(
    seed: Seed, family: Path, tmp_path: Path
) -> None:
    write_variant(tmp_path / "vec" / "bf16")
    asked = {"embedding_weights": str(tmp_path / "vec"), "embedding_model_id": "vec"}
    model = Deployment.objects.filter(
        variant__model__public_id="penstock-demo", variant__precision="bf16"
    )
    assert seed(family, **asked)["deployment_id"] == model.get().id
    model.update(replicas_min=0)
    assert seed(family, **asked)["deployment_id"] is None


def test_a_variant_that_comes_later_is_added(seed: Seed, family: Path, tmp_path: Path) -> None:
    (family / "int8" / "quality.json").rename(tmp_path / "later.json")
    seed(family)
    assert Variant.objects.get(precision="int8").published_at is None
    (tmp_path / "later.json").rename(family / "int8" / "quality.json")
    seed(family)
    assert Variant.objects.get(precision="int8").published_at is not None


def test_the_bf16_folder_brings_its_siblings(seed: Seed, family: Path) -> None:
    seed(family / "bf16")
    assert Variant.objects.count() == 3


def test_a_single_folder_is_one_variant(seed: Seed, tmp_path: Path) -> None:
    write_variant(tmp_path / "mine", report=False, dtype="float16")
    seed(tmp_path / "mine", model_id="acme/mine")
    variant = Variant.objects.get()
    assert (variant.precision, variant.context_tokens) == ("fp16", 2048)
    assert variant.model.name == "mine"


def test_a_model_for_embeddings_is_seeded_beside_it(
    seed: Seed, family: Path, tmp_path: Path
) -> None:
    write_variant(tmp_path / "vec" / "bf16")
    asked = {"embedding_weights": str(tmp_path / "vec"), "embedding_model_id": "vec"}
    seed(family, **asked)
    embedder = Model.objects.get(public_id="vec")
    assert embedder.task == "embed"
    assert embedder.default_variant is not None
    assert embedder.default_variant.dimensions == 256
    price = prices_in_force(None, timezone.now())[embedder.default_variant.id]
    assert (price.input_nanos, price.output_nanos) == (20_000_000, 0)
    version = last_version()
    seed(family, **asked)
    assert last_version() == version


def test_a_model_for_embeddings_waits_where_there_is_no_room(
    seed: Seed, family: Path, tmp_path: Path
) -> None:
    write_variant(tmp_path / "vec" / "bf16")
    seed(family, embedding_weights=str(tmp_path / "vec"), embedding_replicas=0)
    assert Deployment.objects.get(variant__model__task="embed").replicas_min == 0


def test_other_weights_in_the_same_place_are_a_new_variant(seed: Seed, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    write_variant(folder)
    seed(folder)
    earlier = Variant.objects.get()
    Variant.objects.update(weights_digest=weights_digest(folder))
    seed(folder)
    assert Variant.objects.get() == earlier
    (folder / "generation_config.json").write_text("{}")
    seed(folder)
    variant = Variant.objects.exclude(id=earlier.id).get()
    assert (variant.precision, variant.is_default) == ("bf16-2", True)
    assert variant.published_at is not None
    running = {each.variant.precision: each.replicas_min for each in Deployment.objects.all()}
    assert running == {"bf16": 0, "bf16-2": 1}


def test_another_engine_takes_over(seed: Seed, family: Path) -> None:
    seed(family)
    seed(family, engine="vllm")
    assert {each.engine for each in Deployment.objects.all()} == {"vllm"}


@pytest.mark.parametrize("config", [{"vocab_size": None}, {"max_position_embeddings": "long"}])
def test_a_folder_that_is_no_model_is_refused(
    seed: Seed, tmp_path: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    write_variant(tmp_path / "mine", **config)
    with pytest.raises(SystemExit):
        seed(tmp_path / "mine")
    assert "config.json has no" in capsys.readouterr().err
    assert not User.objects.exists()


def test_a_password_must_be_given(
    seed: Seed, family: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        seed(family, owner_password="")
    assert "PENSTOCK_SEED_OWNER_PASSWORD is not set" in capsys.readouterr().err
