"""Who there is in a simulated world: organizations, their projects and keys, and prices."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from control.api_keys.models import ApiKey
from control.catalog.models import Model, Variant
from control.organizations.models import (
    DEFAULT_CREDIT_LIMIT_NANOS,
    BillingMode,
    Organization,
    Project,
)
from control.pricing.models import Price, PriceBook
from serving.contract.budget import LimitPeriod, balance_budget_id, limit_budget_id
from tests.simulation.clock import Clock

BAND = 1000
"""The input tokens from which on a request is of the second band."""
VARIANT = "variant_1"
"""What gateways serve."""
DEAR_NANOS = 10**12
"""A price at which a request can cost more than is believed."""
SCALES = (1, 1000, 20_000)
"""What amounts are multiplied with: a world of nanos, one of cents, one of dollars."""
FINE: tuple[LimitPeriod, ...] = ("week", "day")
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
    tier: str = "default"
    input_tokens_below: int | None = None
    """Where the next band begins."""
    organization_id: str | None = None
    """Whose contract it is; None for everybody's."""
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """Who may ask: a key of a project of an organization."""

    organization_id: str
    project_id: str
    key_id: str


@dataclass(slots=True)
class World:
    """What exists. `limits` holds the monthly limits that control's rows say now, `fine_limits` the
    ids of hard budgets by the week and the day."""

    clock: Clock
    callers: list[Caller] = field(default_factory=list)
    tariffs: list[Tariff] = field(default_factory=list)
    limits: dict[str, int | None] = field(default_factory=dict)
    fine_limits: set[str] = field(default_factory=set)
    scale: int = 1
    tax_rates: dict[str, int] = field(default_factory=dict)
    """Basis points of tax on what an organization is invoiced."""

    def scaled(self, rng: random.Random, nanos: int) -> int:
        """Return an amount as it is in this world, to an odd nano."""
        return nanos * self.scale + rng.randrange(self.scale)

    @property
    def organization_ids(self) -> list[str]:
        """All organizations, in order."""
        return sorted({caller.organization_id for caller in self.callers})

    def budgets_of(self, caller: Caller) -> list[str]:
        """Return what the change feed tells a gateway to hold on for this caller."""
        named = (caller.organization_id, caller.project_id, caller.key_id)
        limited = [limit_budget_id(one) for one in named if self.limits.get(one) is not None]
        fine = [limit_budget_id(one, period) for one in named for period in FINE]
        mine = [one for one in fine if one in self.fine_limits]
        return [balance_budget_id(caller.organization_id), *limited, *mine]

    def schedule(self, at: datetime) -> list[Tariff]:
        """Return the bands in force at a moment, the base band first."""
        rows = [
            one
            for one in self.tariffs
            if one.variant_id == VARIANT and one.price_id.startswith("price_")
            and one.effective_at <= at and (one.superseded_at is None or at < one.superseded_at)
        ]  # fmt: skip
        return sorted(rows, key=lambda one: one.input_tokens_min)


def make_world(rng: random.Random, *, scales: Sequence[int] = SCALES) -> World:
    """Make a few customers and three lists of prices, one over soon and one of the future."""
    start = FIRST_DAY + timedelta(minutes=rng.randrange(2 * 24 * 60))
    world = World(Clock(start), scale=rng.choice(scales))
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
        spend_limit_nanos=(limit := _limit(world, rng)),
        credit_limit_nanos=DEFAULT_CREDIT_LIMIT_NANOS if limit is None else limit,
    )
    world.limits[organization.id] = organization.spend_limit_nanos
    for of_project in range(rng.choice((1, 2))):
        project = Project.objects.create(
            id=f"proj_{number}{of_project}",
            organization=organization,
            name=f"Project {of_project}",
            spend_limit_nanos=_limit(world, rng),
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
        digest=hashlib.sha256(name.encode()).hexdigest(),
        prefix="pen_live_abc",
        last_four="wxyz",
        spend_limit_nanos=_limit(world, rng),
    )
    world.limits[key.id] = key.spend_limit_nanos
    world.callers.append(Caller(project.organization_id, project.id, key.id))


def _limit(world: World, rng: random.Random) -> int | None:
    return rng.choice((None, None, world.scaled(rng, rng.randrange(20_000, 600_000))))


def _make_prices(world: World, rng: random.Random) -> None:
    model = Model.objects.create(id="model_1", public_id="small", name="Small")
    variant, other = (
        Variant.objects.create(
            id=name, model=model, precision=precision, weights="weights",
            context_tokens=4096, output_tokens_max=1024, vocabulary_size=1000,
        )
        for name, precision in ((VARIANT, "bf16"), ("variant_2", "int8"))
    )  # fmt: skip
    now = world.clock.now
    moments = [
        now - timedelta(days=60),
        now + timedelta(minutes=rng.randrange(5, 24 * 60)),
        now + timedelta(days=40),
    ]
    for number, effective_at in enumerate(moments):
        book = PriceBook.objects.create(id=f"book_{number}", name=f"List {number}")
        for of_band, tokens_min in enumerate((0, BAND)):
            meters = (
                rng.randrange(100_001, 400_000),
                rng.randrange(100_000),
                rng.randrange(900_000),
            )
            price = Price.objects.create(
                id=f"price_{number}{of_band}", book=book, variant=variant,
                input_tokens_min=tokens_min,
                input_nanos=world.scaled(rng, meters[0] * 1000 + rng.randrange(1000)),
                cached_input_nanos=world.scaled(rng, meters[1] * 1000 + rng.randrange(1000)),
                output_nanos=world.scaled(rng, meters[2] * 1000 + rng.randrange(1000)),
            )  # fmt: skip
            world.tariffs.append(_tariff(price, model.id, moments, number))
        PriceBook.objects.filter(id=book.id).update(
            effective_at=effective_at, published_at=moments[0]
        )
    start = moments[0]
    _make_odd(world, variant, "cancelled", start + timedelta(days=70), cancelled_at=start)
    _make_odd(world, variant, "contract", start + timedelta(days=1), organization_id="org_0")
    _make_odd(world, variant, "flex", start + timedelta(days=2), tier="flex")
    _make_odd(world, other, "dear", start + timedelta(days=3), nanos=DEAR_NANOS)


def _make_odd(
    world: World,
    variant: Variant,
    name: str,
    effective_at: datetime,
    *,
    tier: str = "default",
    nanos: int = 90_001_003,
    organization_id: str | None = None,
    cancelled_at: datetime | None = None,
) -> None:
    """Make a price that no gateway asks for by itself, named after what is odd about it."""
    book = PriceBook.objects.create(id=f"book_{name}", name=name, organization_id=organization_id)
    Price.objects.create(
        id=name, book=book, variant=variant, tier=tier, input_nanos=nanos,
        cached_input_nanos=nanos // 3, output_nanos=nanos // 7 * 9,
    )  # fmt: skip
    PriceBook.objects.filter(id=book.id).update(
        effective_at=effective_at, published_at=effective_at - timedelta(days=90),
        cancelled_at=cancelled_at,
    )  # fmt: skip
    made = Tariff(
        name, variant.model_id, variant.id, nanos, nanos // 3, nanos // 7 * 9, 0, effective_at,
        None, tier, None, organization_id, cancelled_at is not None,
    )  # fmt: skip
    world.tariffs.append(made)


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
        input_tokens_below=None if price.input_tokens_min else BAND,
    )
