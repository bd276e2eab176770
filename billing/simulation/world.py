"""Who there is in a simulated world: organizations, their projects and keys, and prices."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from billing.simulation.clock import Clock
from control.catalog.models import Model, Variant
from control.keys.models import ApiKey
from control.prices.models import Price, PriceBook
from control.tenants.models import BillingMode, Organization, Project
from serving.contract.budget import balance_budget_id, limit_budget_id

MILLION = 1_000_000
FIRST_DAY = datetime.fromisoformat("2026-03-30T00:00:00+00:00")
"""Two days before a month's end: seeds cross it often."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """A price as the world knows it, in nanos per million tokens, in force in [from, until)."""

    price_id: str
    model_id: str
    variant_id: str
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int
    input_tokens_min: int
    effective_at: datetime
    superseded_at: datetime | None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who may ask: a key of a project of an organization."""

    organization_id: str
    project_id: str
    key_id: str


@dataclass(slots=True)
class World:
    """What exists. `limits` holds the monthly limits that control's rows say now."""

    clock: Clock
    callers: list[Caller] = field(default_factory=list)
    tariffs: list[Tariff] = field(default_factory=list)
    limits: dict[str, int | None] = field(default_factory=dict)

    @property
    def organization_ids(self) -> list[str]:
        """All organizations, in order."""
        return sorted({caller.organization_id for caller in self.callers})

    def budgets_of(self, caller: Caller) -> list[str]:
        """Return what the change feed tells a gateway to hold on for this caller."""
        named = (caller.organization_id, caller.project_id, caller.key_id)
        limited = [limit_budget_id(one) for one in named if self.limits.get(one) is not None]
        return [balance_budget_id(caller.organization_id), *limited]

    def schedule(self, at: datetime) -> list[Tariff]:
        """Return the bands in force at a moment, the base band first."""
        rows = [
            one
            for one in self.tariffs
            if one.effective_at <= at and (one.superseded_at is None or at < one.superseded_at)
        ]
        return sorted(rows, key=lambda one: one.input_tokens_min)


def make_world(rng: random.Random) -> World:
    """Make a few customers and three lists of prices, one over soon and one of the future."""
    start = FIRST_DAY + timedelta(minutes=rng.randrange(2 * 24 * 60))
    world = World(Clock(start))
    for number in range(rng.choice((1, 2, 2, 3))):
        _make_customer(world, rng, number)
    _make_prices(world, rng)
    return world


def _make_customer(world: World, rng: random.Random, number: int) -> None:
    is_postpaid = rng.random() < 0.15
    organization = Organization.objects.create(
        id=f"org_{number}",
        name=f"Organization {number}",
        billing_mode=BillingMode.POSTPAID if is_postpaid else BillingMode.PREPAID,
        spend_limit_nanos=_limit(rng),
    )
    world.limits[organization.id] = organization.spend_limit_nanos
    for of_project in range(rng.choice((1, 2))):
        project = Project.objects.create(
            id=f"proj_{number}{of_project}",
            organization=organization,
            name=f"Project {of_project}",
            spend_limit_nanos=_limit(rng),
        )
        world.limits[project.id] = project.spend_limit_nanos
        for of_key in range(rng.choice((1, 1, 2))):
            _make_key(world, rng, project, of_key)


def _make_key(world: World, rng: random.Random, project: Project, number: int) -> None:
    name = f"{project.id.removeprefix('proj_')}{number}"
    key = ApiKey.objects.create(
        id=f"key_{name}",
        organization_id=project.organization_id,
        project=project,
        name=name,
        digest=f"digest_{name}",
        prefix="pen_live_abc",
        last_four="wxyz",
        spend_limit_nanos=_limit(rng),
    )
    world.limits[key.id] = key.spend_limit_nanos
    world.callers.append(Caller(project.organization_id, project.id, key.id))


def _limit(rng: random.Random) -> int | None:
    return rng.choice((None, None, rng.randrange(20_000, 600_000)))


def _make_prices(world: World, rng: random.Random) -> None:
    model = Model.objects.create(id="model_1", public_id="small", name="Small")
    variant = Variant.objects.create(
        id="variant_1", model=model, precision="bf16", weights="weights",
        context_tokens=4096, output_tokens_max=1024, vocabulary_size=1000,
    )  # fmt: skip
    now = world.clock.now
    moments = [
        now - timedelta(days=60),
        now + timedelta(minutes=rng.randrange(5, 24 * 60)),
        now + timedelta(days=40),
    ]
    for number, effective_at in enumerate(moments):
        book = PriceBook.objects.create(id=f"book_{number}", name=f"List {number}")
        for of_band, tokens_min in enumerate((0, 1000)):
            meters = (
                rng.randrange(100_001, 400_000),
                rng.randrange(100_000),
                rng.randrange(900_000),
            )
            price = Price.objects.create(
                id=f"price_{number}{of_band}", book=book, variant=variant,
                input_tokens_min=tokens_min,
                input_nanos=meters[0] * 1000 + rng.randrange(1000),
                cached_input_nanos=meters[1] * 1000 + rng.randrange(1000),
                output_nanos=meters[2] * 1000 + rng.randrange(1000),
            )  # fmt: skip
            world.tariffs.append(_tariff(price, model.id, moments, number))
        PriceBook.objects.filter(id=book.id).update(
            effective_at=effective_at, published_at=moments[0]
        )


def _tariff(price: Price, model_id: str, moments: list[datetime], number: int) -> Tariff:
    return Tariff(
        price_id=price.id,
        model_id=model_id,
        variant_id=price.variant_id,
        input_nanos=price.input_nanos,
        cached_input_nanos=price.cached_input_nanos,
        output_nanos=price.output_nanos,
        input_tokens_min=price.input_tokens_min,
        effective_at=moments[number],
        superseded_at=moments[number + 1] if number + 1 < len(moments) else None,
    )
