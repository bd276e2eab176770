"""A small world of customers and prices, and the usage events that gateways would send of it."""

import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec

from billing.credit.models import CreditGrant, GrantKind
from billing.credit.services.grants import grant_credit
from billing.credit.services.leases import grant_leases
from billing.following.cursor import Page
from billing.following.models import HourRollup, MinuteRollup
from billing.following.rollups import follow_rollups
from control.actor import system
from control.catalog.models import Model, Variant
from control.ids import new_id as new_control_id
from control.keys.models import ApiKey
from control.prices.models import Price, PriceBook
from control.publish.lineage import lineage
from control.tenants.models import Organization, Project
from serving.contract.budget import balance_budget_id
from serving.contract.ids import new_id, uuid7
from serving.contract.lease import Ask, Deferred, Granted, Refused
from serving.contract.price import RATING, charge
from serving.contract.usage import BILLABLE, LeaseCharge, UsageBatch, UsageEvent

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
METERS = SimpleNamespace(
    input_nanos=150_000_000, cached_input_nanos=75_000_000, output_nanos=600_000_000
)
GATEWAY = "gw_1"


@dataclass(frozen=True)
class Customer:
    """An organization with one project and one key."""

    organization: Organization
    project: Project
    key: ApiKey

    @property
    def id(self) -> str:
        return self.organization.id

    @property
    def balance(self) -> str:
        """The budget that its balance is."""
        return balance_budget_id(self.id)


def make_customer(name: str = "Acme", **fields: Any) -> Customer:
    organization = Organization.objects.create(name=name, **fields)
    project = Project.objects.create(organization=organization, name="Default")
    return Customer(organization, project, make_key(project))


def make_key(project: Project, **fields: Any) -> ApiKey:
    return ApiKey.objects.create(
        organization=project.organization,
        project=project,
        name="first",
        digest=secrets.token_hex(32),
        prefix="pen_live_abc",
        last_four="wxyz",
        **fields,
    )


def add_key(customer: Customer) -> Customer:
    """Return the customer with another key."""
    return replace(customer, key=make_key(customer.project))


def make_price(public_id: str = "penstock-demo", *, at: datetime = NOW, **fields: Any) -> Price:
    """Publish a price, of 150, 75 and 600 nanos per token by default, for a new model's one
    variant."""
    model = Model.objects.create(public_id=public_id, name=public_id)
    variant = Variant.objects.create(
        model=model,
        precision="bf16",
        weights="models/demo",
        context_tokens=2048,
        output_tokens_max=1024,
        vocabulary_size=1000,
    )
    earlier_books = PriceBook.objects.count()
    book = PriceBook.objects.create(name="List")
    price = Price.objects.create(book=book, variant=variant, **vars(METERS) | fields)
    then = at - timedelta(days=30, seconds=earlier_books)  # only one takes effect at a time
    PriceBook.objects.filter(id=book.id).update(effective_at=then, published_at=then)
    return price


def make_event(customer: Customer, price: Price, **changes: Any) -> UsageEvent:
    """Return a completed request of 1,000 input tokens, 400 of them cached, and 20 output tokens:
    132,000 nanos."""
    received_at = changes.get("received_at", NOW - timedelta(minutes=1))
    milliseconds = int(received_at.timestamp() * 1000)
    values = {
        "event_id": uuid7(at_ms=milliseconds, random_bits=uuid.uuid4().int & (2**74 - 1)),
        "gateway_id": GATEWAY,
        "organization_id": customer.id,
        "project_id": customer.project.id,
        "key_id": customer.key.id,
        "model_id": price.variant.model_id,
        "variant_id": price.variant_id,
        "deployment_id": "dep_1",
        "replica_id": "rep_1",
        "price_id": price.id,
        "endpoint": "chat.completions",
        "tier": "default",
        "outcome": "completed",
        "received_at": received_at,
        "input_tokens": 1000,
        "cached_input_tokens": 400,
        "output_tokens": 20,
        "ttft_seconds": 0.02,
        "total_seconds": 0.4,
        "rating": RATING,
        **changes,
    }
    return UsageEvent(**values)


def charge_of(event: UsageEvent) -> int:
    """Return what the event costs at the one price there is."""
    if event.outcome not in BILLABLE:
        return 0
    due = charge(
        METERS,
        input_tokens=event.input_tokens,
        cached_input_tokens=event.cached_input_tokens,
        output_tokens=event.output_tokens,
        rating=event.rating,
    )
    return due.total_nanos


def with_lease(event: UsageEvent, lease_id: str, budget_id: str | None = None) -> UsageEvent:
    """Return the event charged to a lease, of the balance unless a budget is named."""
    budget_id = budget_id or balance_budget_id(event.organization_id)
    claimed = LeaseCharge(budget_id, lease_id, charge_of(event))
    return msgspec.structs.replace(event, charges=(*event.charges, claimed))


def make_batch(events: Iterable[UsageEvent | bytes], gateway_id: str = GATEWAY) -> UsageBatch:
    """Return a batch as it arrives: events as raw bytes."""
    raw = tuple(
        msgspec.Raw(event if isinstance(event, bytes) else msgspec.json.encode(event))
        for event in events
    )
    return UsageBatch(gateway_id=gateway_id, events=raw)


def give_credit(customer: Customer, nanos: int, **changes: Any) -> CreditGrant:
    """Give prepaid credit that never expires, unless `changes` say otherwise."""
    values = {
        "organization_id": customer.id,
        "kind": GrantKind.PREPAID,
        "amount_nanos": nanos,
        "idempotency_key": new_control_id("give"),
        "actor": system("tests"),
        "reason": "test",
        "now": NOW,
        **changes,
    }
    return grant_credit(**values)


def ask_for(
    budget_id: str, need: int, want: int = 0, *, gateway: str = GATEWAY, now: datetime = NOW
) -> Granted | Refused:
    """Ask billing for a lease as a gateway would."""
    ask = Ask(new_id(), budget_id, need, want or need, now)
    (answer,) = grant_leases(gateway_id=gateway, asks=[ask], lineage=lineage(), now=now)
    assert not isinstance(answer, Deferred)
    return answer


def roll_up() -> None:
    """Sum all usage anew, that of this test's own transaction too, which no follower sees yet."""
    for rollup in (MinuteRollup, HourRollup):
        rollup.objects.all().delete()
    end = str(2**64 - 1)
    follow_rollups(Page(from_xid="0", until_xid=end, is_last=True, head_xid=end))


def broken_promises() -> list[str]:
    """Return the checks of the house that fail, with their counterexamples."""
    from billing.following.integrity import check_all

    return [f"{one.sentence}: {one.shown}" for one in check_all() if not one.holds]
