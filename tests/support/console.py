"""What the console is looked at with: a catalog of three variants, and weeks of usage."""

import random
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from django.utils import timezone

from billing.metering.ingest import ingest
from control.actor import Actor, system
from control.catalog import services as catalog
from control.catalog.models import Variant
from control.ids import new_id
from control.keys.models import ApiKey
from control.prices import services as prices
from control.prices.models import Price
from control.tenants import selectors as tenants
from control.tenants.models import Organization, Project, User
from control.tenants.permissions import member
from control.tenants.services import create_organization
from serving.contract.ids import uuid7
from serving.contract.usage import UsageEvent
from tests.support.usage import make_batch, roll_up

OPERATOR = system("tests")
PASSWORD = "correct horse battery staple"
ACCURACY = {"bf16": 0.93, "int8": 0.92, "int4": 0.88}
SKILLS = ("arithmetic", "facts", "json_objects", "lists", "product", "unknown", "yes_no")
EVENTS_PER_BATCH = 1000


@dataclass(frozen=True)
class Tenant:
    """An organization with its owner and first project."""

    organization: Organization
    owner: User
    project: Project

    @property
    def actor(self) -> Actor:
        return member(tenants.membership(self.owner, self.organization.id))


def make_tenant(name: str = "Acme Research", email: str = "ada@acme.example") -> Tenant:
    owner = User.objects.create_user(email, PASSWORD)
    organization = create_organization(actor=OPERATOR, name=name, owner=owner)
    return Tenant(organization, owner, tenants.default_project(organization))


def score(share: float, asked: int) -> dict[str, Any]:
    return {
        "right": round(share * asked),
        "asked": asked,
        "share": share,
        "low": max(share - 0.05, 0.0),
        "high": min(share + 0.04, 1.0),
    }


def report(precision: str) -> dict[str, Any]:
    """Return a quality report as the demo model's evaluation writes it."""
    share = ACCURACY[precision]
    skills = {skill: score(share - 0.01 * n, 43) for n, skill in enumerate(SKILLS)}
    return {
        "schema": 1,
        "variant": precision,
        "accuracy": {"overall": score(share, 300), "by_skill": skills},
        "perplexity": 1.21 + (1 - share),
        "size_bytes": {"bf16": 8_400_000, "int8": 5_300_000, "int4": 3_900_000}[precision],
        "output_tokens_per_second": 3_412.4,
    }


def make_catalog() -> dict[str, Price]:
    """Publish the demo model in three variants, only the first deployed; return their prices."""
    model = catalog.create_model(
        actor=OPERATOR,
        public_id="penstock-demo",
        name="Penstock demo",
        description="A small Llama that knows Penstock, sums, lists and JSON.",
    )
    book = prices.draft_book(actor=OPERATOR, name="List prices")
    variants = {precision: make_variant(model, precision) for precision in ACCURACY}
    made = {
        precision: prices.set_price(
            actor=OPERATOR,
            book=book,
            variant=variant,
            input_nanos=150_000_000 // step,
            cached_input_nanos=75_000_000 // step,
            output_nanos=600_000_000 // step,
        )
        for step, (precision, variant) in enumerate(variants.items(), start=1)
    }
    with long_ago():
        prices.publish_book(actor=OPERATOR, book=book)
    catalog.create_deployment(actor=OPERATOR, variant=variants["bf16"], replicas_min=1)
    return made


def make_embedder() -> Price:
    """Publish a model for embeddings that runs; return its price."""
    model = catalog.create_model(
        actor=OPERATOR, public_id="penstock-demo-embed", name="Penstock demo embed", task="embed"
    )
    variant = catalog.create_variant(
        actor=OPERATOR,
        model=model,
        precision="bf16",
        weights="models/embed",
        context_tokens=2048,
        output_tokens_max=1,
        vocabulary_size=1000,
        dimensions=256,
    )
    variant = catalog.publish_variant(actor=OPERATOR, variant=variant)
    book = prices.draft_book(actor=OPERATOR, name="Embeddings")
    price = prices.set_price(
        actor=OPERATOR,
        book=book,
        variant=variant,
        input_nanos=20_000_000,
        cached_input_nanos=10_000_000,
        output_nanos=0,
    )
    prices.publish_book(actor=OPERATOR, book=book)
    catalog.create_deployment(actor=OPERATOR, variant=variant, replicas_min=1)
    return price


def long_ago() -> AbstractContextManager[object]:
    """Let prices be published before the usage that they are for."""
    then = timezone.now() - timedelta(days=100)
    return patch("control.prices.services.timezone", SimpleNamespace(now=lambda: then))


def make_variant(model: Any, precision: str) -> Variant:
    parent = None if precision == "bf16" else model.variants.get(precision="bf16")
    variant = catalog.create_variant(
        actor=OPERATOR,
        model=model,
        precision=precision,
        parent=parent,
        weights=f"models/{precision}",
        context_tokens=2048,
        output_tokens_max=1024,
        vocabulary_size=1000,
        size_bytes=report(precision)["size_bytes"],
    )
    catalog.record_quality(actor=OPERATOR, variant=variant, document=report(precision))
    return catalog.publish_variant(actor=OPERATOR, variant=variant)


def make_request(key: ApiKey, price: Price, at: datetime, **changes: Any) -> UsageEvent:
    """Return one request of a key: 1,000 input tokens, 400 of them cached, and 20 output."""
    random_bits = uuid.uuid4().int & (2**74 - 1)
    values = {
        "event_id": uuid7(at_ms=int(at.timestamp() * 1000), random_bits=random_bits),
        "gateway_id": "gw_1",
        "organization_id": key.organization_id,
        "project_id": key.project_id,
        "key_id": key.id,
        "model_id": price.variant.model_id,
        "variant_id": price.variant_id,
        "deployment_id": new_id("dep"),
        "replica_id": "rep_1",
        "price_id": price.id,
        "endpoint": "chat.completions",
        "tier": "default",
        "outcome": "completed",
        "received_at": at,
        "input_tokens": 1000,
        "cached_input_tokens": 400,
        "output_tokens": 20,
        "ttft_seconds": 0.02,
        "total_seconds": 0.4,
        "streamed": True,
        **changes,
    }
    return UsageEvent(**values)


def book(*events: UsageEvent, now: datetime) -> None:
    """Book events as a gateway's batches."""
    for start in range(0, len(events), EVENTS_PER_BATCH):
        receipt = ingest(make_batch(events[start : start + EVENTS_PER_BATCH]), now=now)
        assert not receipt.dead_lettered, receipt.dead_lettered
    roll_up()


def weeks_of_usage(
    keys: list[ApiKey], prices: list[Price], now: datetime, *, days: int = 21, per_day: int = 60
) -> list[UsageEvent]:
    """Return believable traffic: busier by day, few at weekends, one in fifty failing."""
    chance = random.Random(7)
    events = []
    for day in range(days):
        for _ in range(chance.randint(per_day // 3, per_day)):
            at = now - timedelta(days=day, seconds=chance.triangular(60, 86_000, 30_000))
            events.append(random_request(chance, keys, prices, at))
    return events


def random_request(
    chance: random.Random, keys: list[ApiKey], prices: list[Price], at: datetime
) -> UsageEvent:
    input_tokens = chance.randint(40, 1800)
    ttft = chance.lognormvariate(-4, 0.6)
    output_tokens = chance.randint(5, 400)
    return make_request(
        chance.choices(keys, range(len(keys), 0, -1))[0],
        chance.choices(prices, range(len(prices), 0, -1))[0],
        at,
        input_tokens=input_tokens,
        cached_input_tokens=int(input_tokens * chance.choice((0, 0, 0.4, 0.7, 0.9))),
        output_tokens=output_tokens,
        outcome=chance.choices(("completed", "client_cancelled", "engine_failed"), (94, 4, 2))[0],
        ttft_seconds=ttft,
        total_seconds=ttft + output_tokens / chance.randint(150, 400),
        queue_seconds=chance.random() / 200,
    )
