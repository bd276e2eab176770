"""Made `books_2475970.sql.gz` and `books_2475970.json`; runs with the code of commit 2475970 only.

It migrates an empty database with that commit's migrations, lets its services sell, lease, meter,
expire and void for seven weeks of a fixed clock and fixed dice, dumps the database, and writes
down what that code said of it. Run it in a checkout of 2475970, with this file's path:

    PYTHONPATH=.:platform python …/make_books_2475970.py FOLDER

What it leaves in the books on purpose: debts, with and without credit bought later; a grant past
its time that open leases keep from being closed; an overrun lease (the one check that fails); an
event whose id and `received_at` lie in different months; events of unknown, closed, foreign and
missing leases; letters unread, and one booked after its price was published.
"""

import dataclasses
import gzip
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import django
from django.utils import timezone

START = datetime(2026, 9, 28, 8, 0, tzinfo=UTC)
END = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
DOLLAR = 10**9
DICE = random.Random(2475970)


class Clock:
    """The only time there is; `START` until someone moves it on."""

    now = START

    def __call__(self) -> datetime:
        return self.now

    def nanoseconds(self) -> int:
        return int(self.now.timestamp()) * 10**9


CLOCK = Clock()


def set_up() -> None:
    """Start PostgreSQL, hold time and chance still, and migrate the empty database."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.fixtures.settings"
    from tests.fixtures import postgres

    postgres.ensure_running()
    timezone.now = CLOCK
    time.time_ns = CLOCK.nanoseconds
    secrets.choice = DICE.choice
    secrets.randbits = DICE.getrandbits
    django.setup()
    from django.apps import apps
    from django.core.management import call_command

    for model in apps.get_models():
        for column in model._meta.fields:
            if getattr(column.default, "__name__", "") == "now":
                column.default = CLOCK
    call_command("migrate", verbosity=0)


def at(month: int, day: int, hour: int = 9, minute: int = 0, **parts: int) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC) + timedelta(**parts)


class SeededOrganization:
    """An organization with its projects and keys: `pairs` are those that make requests."""

    def __init__(self, name: str, *, mode: str = "prepaid", limit_nanos: int | None = None) -> None:
        from control.actor import system
        from control.tenants import selectors, services
        from control.tenants.models import User

        self.operator = system("the books of before")
        owner = User.objects.create_user(f"owner@{name.lower()}.example")
        self.organization = services.create_organization(
            actor=self.operator, name=name, owner=owner, billing_mode=mode
        )
        if limit_nanos is not None:
            services.set_organization_limit(
                actor=self.operator, organization=self.organization, spend_limit_nanos=limit_nanos
            )
        self.pairs = [self.key(selectors.default_project(self.organization))]

    @property
    def id(self) -> str:
        return self.organization.id

    def project(self, name: str, limit_nanos: int | None = None):
        from control.tenants import services

        return services.create_project(
            actor=self.operator,
            organization=self.organization,
            name=name,
            spend_limit_nanos=limit_nanos,
        )

    def key(self, project, limit_nanos: int | None = None):
        from control.keys.services import mint_key

        key, _ = mint_key(
            actor=self.operator, project=project, name="key", spend_limit_nanos=limit_nanos
        )
        return project, key

    def give(self, dollars: float, kind: str = "prepaid", expires_at: datetime | None = None):
        from billing.credit.models import GrantKind
        from billing.credit.services.grants import grant_credit

        return grant_credit(
            organization_id=self.id,
            kind=GrantKind(kind),
            amount_nanos=int(dollars * DOLLAR) + DICE.randrange(10),
            idempotency_key=f"gift-{DICE.getrandbits(40)}",
            actor=self.operator,
            reason="The books of before",
            now=CLOCK.now,
            expires_at=expires_at,
        )


class Shop:
    """One model in two variants, sold in three tiers; the price books by their name."""

    def __init__(self, operator) -> None:
        from control.catalog import services as catalog

        self.operator = operator
        self.model = catalog.create_model(actor=operator, public_id="oak", name="Oak")
        self.variants = []
        for precision in ("bf16", "int8"):
            variant = catalog.create_variant(
                actor=operator,
                model=self.model,
                precision=precision,
                weights=f"weights/{precision}",
                context_tokens=131_072,
                output_tokens_max=32_768,
                vocabulary_size=50_000,
            )
            self.variants.append(catalog.publish_variant(actor=operator, variant=variant))
        self.deployments = [
            catalog.create_deployment(actor=operator, variant=variant) for variant in self.variants
        ]

    def draft(self, name: str, *, percent: int, tiers: Iterable[str]):
        """Draft a book whose prices end in odd digits, so that rounding has something to do."""
        from control.prices import services

        book = services.draft_book(actor=self.operator, name=name)
        for place, variant in enumerate(self.variants):
            for tier in tiers:
                share = {"priority": 180, "standard": 100, "batch": 50}[tier] * percent
                services.set_price(
                    actor=self.operator,
                    book=book,
                    variant=variant,
                    tier=tier,
                    input_nanos=(3_000_000_007 - 900_000_001 * place) * share // 10_000,
                    cached_input_nanos=(750_000_011 - 200_000_003 * place) * share // 10_000,
                    output_nanos=(15_000_000_013 - 4_000_000_007 * place) * share // 10_000,
                )
        return book

    def publish(self, book, effective_at: datetime | None = None) -> None:
        from control.prices import services

        services.publish_book(actor=self.operator, book=book, effective_at=effective_at)

    def price(self, variant, tier: str, moment: datetime):
        """Return the published price in force at `moment`."""
        from control.prices.models import Price

        in_force = Price.objects.filter(
            variant=variant, tier=tier, book__published_at__isnull=False
        ).filter(book__effective_at__lte=moment)
        return in_force.select_related("book").order_by("-book__effective_at").first()


OUTCOMES = (
    *("completed",) * 12,
    *("client_cancelled",) * 3,
    "engine_failed",
    "timed_out",
    "gateway_lost",
    "refused_by_engine",
)
ENDPOINTS = ("chat.completions", "completions", "responses", "messages")


class Gateway:
    """Makes events as the gateway of 2475970 does, and asks, keeps and returns leases for them."""

    def __init__(self, gateway_id: str, shop: Shop) -> None:
        self.id = gateway_id
        self.shop = shop

    def event(self, pair, moment: datetime, **changes):
        """Return an event received at `moment`; its id was made a few milliseconds before."""
        from serving.contract.ids import uuid7
        from serving.contract.usage import UsageEvent

        project, key = pair
        place = DICE.randrange(2)
        tier = DICE.choice(("standard", "standard", "standard", "priority", "batch"))
        price = changes.pop("price", None)
        price = price or self.shop.price(self.shop.variants[place], tier, moment)
        outcome = changes.get("outcome") or DICE.choice(OUTCOMES)
        made_at = changes.pop("made_at", moment - timedelta(milliseconds=DICE.randrange(1, 9)))
        at_ms = int(made_at.timestamp() * 1000)
        values = {
            "event_id": str(uuid7(at_ms=at_ms, random_bits=DICE.getrandbits(74))),
            "gateway_id": self.id,
            "organization_id": project.organization_id,
            "project_id": project.id,
            "key_id": key.id,
            "model_id": self.shop.model.id,
            "variant_id": price.variant_id,
            "deployment_id": self.shop.deployments[self.variant_place(price)].id,
            "price_id": price.id,
            "endpoint": DICE.choice(ENDPOINTS),
            "tier": price.tier,
            "outcome": outcome,
            "received_at": moment + timedelta(microseconds=DICE.randrange(1000)),
            "total_seconds": DICE.randrange(1, 90_000) / 1000,
            "queue_seconds": DICE.randrange(200) / 1000,
            "streamed": DICE.random() < 0.7,
        }
        return UsageEvent(**values | self.work(outcome) | changes)

    def variant_place(self, price) -> int:
        return [variant.id for variant in self.shop.variants].index(price.variant_id)

    def work(self, outcome: str) -> dict[str, object]:
        """Return the tokens, TTFT and labels that go with an outcome."""
        if outcome in ("gateway_lost", "refused_by_engine"):
            return {}
        tokens = DICE.randrange(1, 24_000)
        output = DICE.randrange(1, 9_000)
        return {
            "replica_id": f"rep_{DICE.randrange(4)}",
            "input_tokens": tokens,
            "cached_input_tokens": DICE.choice((0, 0, DICE.randrange(tokens))),
            "output_tokens": output,
            "reasoning_tokens": DICE.choice((0, 0, DICE.randrange(output))),
            "ttft_seconds": DICE.choice((None, DICE.randrange(10, 4_000) / 1000)),
            "client_request_id": DICE.choice((None, f"req-{DICE.getrandbits(24):x}")),
        }

    def ask(self, budget_id: str, need_nanos: int, want_nanos: int = 0):
        """Ask billing for a lease."""
        from billing.credit.services.leases import grant_lease
        from serving.contract.ids import new_id
        from serving.contract.lease import Ask

        ask = Ask(new_id(), budget_id, need_nanos, want_nanos or need_nanos)
        return grant_lease(gateway_id=self.id, ask=ask, now=CLOCK.now)

    def give_back(self, lease_id: str, keep_nanos: int, *, closed: bool) -> None:
        from billing.credit.services.leases import take_back
        from serving.contract.lease import Return

        given = Return(lease_id, keep_nanos, closed)
        take_back(gateway_id=self.id, given=given, now=CLOCK.now)

    def send(self, events: Iterable) -> None:
        """Have billing book a batch."""
        import msgspec

        from billing.metering.ingest import ingest
        from serving.contract.usage import UsageBatch

        raw = tuple(
            msgspec.Raw(one if isinstance(one, bytes) else msgspec.json.encode(one))
            for one in events
        )
        ingest(UsageBatch(self.id, raw), now=CLOCK.now)


def charge_of(event) -> int:
    from billing.metering.selectors import prices_by_id

    from billing.rating.rate import rate

    return rate(event, prices_by_id({event.price_id})[event.price_id]).charged_nanos


def charged_to(event, *parts: tuple[str, str, int]):
    """Return the event with its charge taken from leases: (budget, lease, nanos) each."""
    import msgspec

    from serving.contract.usage import LeaseCharge

    return msgspec.structs.replace(event, charges=tuple(LeaseCharge(*part) for part in parts))


def trade(gateway: Gateway, houses: list[SeededOrganization], moment: datetime, count: int) -> list:
    """Serve `count` requests around `moment`, lease and settle for them; return the events."""
    CLOCK.now = moment
    events = []
    for _ in range(count):
        house = DICE.choice(houses)
        project, key = DICE.choice(house.pairs)
        event = gateway.event((project, key), moment + timedelta(seconds=DICE.randrange(1, 500)))
        nanos = charge_of(event)
        parts = []
        for budget_id in budgets_of(project, key):
            granted = gateway.ask(budget_id, nanos, nanos * DICE.choice((1, 2, 3)))
            if hasattr(granted, "lease_id"):
                parts.append((budget_id, granted.lease_id, nanos))
        events.append(charged_to(event, *parts))
    CLOCK.now = moment + timedelta(minutes=10)
    gateway.send(events)
    for event in events:
        for charge in event.charges:
            keep_nanos = charge.charged_nanos * DICE.choice((1, 2))
            gateway.give_back(charge.lease_id, keep_nanos, closed=DICE.random() < 0.85)
    return events


def budgets_of(project, key) -> list[str]:
    """Return the budgets of a request: its organization's, and those that have a limit."""
    limited = [one.id for one in (project, key) if one.spend_limit_nanos is not None]
    return [project.organization_id, *limited]


def seven_weeks() -> None:
    """Let everything happen that the books of 2475970 can hold."""
    from billing.credit.services.grants import expire_grants
    from billing.credit.services.leases import void_abandoned_leases
    from billing.metering.models import DeadLetter
    from billing.metering.services import book_again
    from control.tenants import services as tenants

    alder = SeededOrganization("Alder", limit_nanos=60 * DOLLAR)
    shop = Shop(alder.operator)
    shop.publish(shop.draft("Autumn", percent=100, tiers=("standard", "priority", "batch")))
    birch, cedar = SeededOrganization("Birch"), SeededOrganization("Cedar")
    dogwood = SeededOrganization("Dogwood")
    elm = SeededOrganization("Elm", mode="postpaid", limit_nanos=80 * DOLLAR)
    fir = SeededOrganization("Fir", mode="postpaid")
    SeededOrganization("Gorse")
    hazel = SeededOrganization("Hazel")
    inner, outer = Gateway("gw_inner", shop), Gateway("gw_outer", shop)

    research = alder.project("Research", 15 * DOLLAR)
    alder.pairs += [alder.key(research), alder.key(research, 4 * DOLLAR)]
    alder.pairs.append(alder.key(alder.project("Idle")))
    elm.pairs.append(elm.key(elm.pairs[0][0], 9 * DOLLAR))
    alder.give(2, "promotional", at(11, 10))
    alder.give(20)
    alder.give(1.5, "promotional", at(12, 31))
    birch.give(3, "promotional", at(10, 25))
    birch.give(0.4, "promotional", at(10, 6))
    birch.give(6, "prepaid", at(11, 15))
    hazel.give(4, "prepaid", at(10, 20))

    everyone = [alder, alder, birch, cedar, dogwood, elm, fir]
    for day in (1, 2, 3, 5):
        trade(DICE.choice((inner, outer)), [*everyone, hazel], at(10, day, 6 + day), 12)
    CLOCK.now = at(10, 7)
    expire_grants(now=CLOCK.now)
    tenants.suspend_organization(actor=alder.operator, organization=hazel.organization)

    # A gateway that vanishes: its lease is voided after a day, its journal arrives after that.
    CLOCK.now = at(10, 9)
    gone = outer.ask(birch.id, 700_000_000)
    late = outer.event(birch.pairs[0], CLOCK.now, outcome="completed")
    lost = outer.event(birch.pairs[0], CLOCK.now, outcome="gateway_lost")
    CLOCK.now = at(10, 12)
    void_abandoned_leases(now=CLOCK.now)
    outer.send([charged_to(late, (birch.id, gone.lease_id, charge_of(late))), lost])

    # Beyond all credit: without any lease, and beyond what its lease was granted.
    for house in (cedar, dogwood, fir):
        for step in range(9):
            CLOCK.now = at(10, 14, 9, step)
            event = inner.event(
                house.pairs[0],
                CLOCK.now,
                outcome="completed",
                input_tokens=90_000 + step,
                output_tokens=30_000,
                cached_input_tokens=77,
            )
            inner.send([event])
    CLOCK.now = at(10, 15)
    small = inner.ask(fir.id, 1_000)
    over = inner.event(fir.pairs[0], CLOCK.now, outcome="completed")
    inner.send([charged_to(over, (fir.id, small.lease_id, charge_of(over)))])
    dogwood.give(8)
    dogwood.give(2.5, "promotional", at(11, 5))

    # One charge from two leases; leases that nobody granted, or granted to another.
    CLOCK.now = at(10, 16)
    first, second = inner.ask(elm.id, 10_000_000), inner.ask(elm.id, 900_000_000)
    split = inner.event(elm.pairs[0], CLOCK.now, outcome="completed")
    rest = charge_of(split) - 10_000_000
    foreign = inner.event(alder.pairs[0], CLOCK.now, outcome="completed")
    unknown = inner.event(alder.pairs[0], CLOCK.now, outcome="client_cancelled")
    wrong = inner.event(fir.pairs[0], CLOCK.now, outcome="completed")
    fair = inner.ask(fir.id, charge_of(wrong))
    inner.send(
        [
            charged_to(
                split, (elm.id, first.lease_id, 10_000_000), (elm.id, second.lease_id, rest)
            ),
            charged_to(foreign, (alder.id, second.lease_id, charge_of(foreign))),
            charged_to(unknown, (alder.id, "lease-of-nobody", charge_of(unknown))),
            charged_to(wrong, (fir.id, fair.lease_id, charge_of(wrong) + 5)),
        ]
    )
    inner.give_back(first.lease_id, 10_000_000, closed=True)

    for day in (18, 19, 22, 24):
        events = trade(DICE.choice((inner, outer)), everyone, at(10, day, day - 6), 12)
    sender = inner if events[0].gateway_id == inner.id else outer
    sender.send([events[0], *events[:5], events[0]])  # sent again, as after a lost answer
    CLOCK.now = at(10, 26)
    expire_grants(now=CLOCK.now)

    # Unreadable, of no calendar, of a price not yet published; the last is booked later.
    CLOCK.now = at(10, 27)
    winter = shop.draft("Winter", percent=110, tiers=("standard", "priority"))
    early = inner.event(elm.pairs[0], CLOCK.now, outcome="completed", price=winter.prices.first())
    bad = inner.event(elm.pairs[0], CLOCK.now, outcome="completed", event_id="not-an-id")
    inner.send([b'{"event_id": "\\u0000half"', bad, early])
    CLOCK.now = at(10, 28)
    shop.publish(winter, at(11, 1, 0))
    letter = DeadLetter.objects.get(event_id=early.event_id)
    book_again(actor=elm.operator, letter=letter, now=CLOCK.now)

    # Midnight between the months passes between an id and its `received_at`.
    trade(outer, everyone, at(10, 31, 23, 45), 14)
    CLOCK.now = at(11, 1, 0, 5)
    across = inner.event(
        alder.pairs[0],
        at(11, 1, 0, 0, milliseconds=4),
        made_at=at(10, 31, 23, 59, milliseconds=59_995),
        outcome="completed",
    )
    inner.send([across])
    for day in (1, 2, 4, 6, 8, 9):
        trade(DICE.choice((inner, outer)), everyone, at(11, day, 5 + day), 14)
    CLOCK.now = at(11, 6)
    expire_grants(now=CLOCK.now)
    CLOCK.now = at(11, 12)
    expire_grants(now=CLOCK.now)
    void_abandoned_leases(now=CLOCK.now)

    # A grant that expires while a lease needs it: it cannot be spent, and is not closed.
    CLOCK.now = at(11, 14, 23, 50)
    held = outer.ask(birch.id, spendable(birch) - 1_000)
    CLOCK.now = at(11, 15, 0, 5)
    expire_grants(now=CLOCK.now)
    used = outer.event(birch.pairs[0], CLOCK.now, outcome="completed")
    outer.send([charged_to(used, (birch.id, held.lease_id, charge_of(used)))])

    for day in (16, 17, 19):
        trade(DICE.choice((inner, outer)), everyone, at(11, day, day - 4), 14)
    shop.publish(shop.draft("Frost", percent=120, tiers=("standard",)), at(12, 1, 0))
    shop.draft("Never", percent=1, tiers=("batch",))
    trade(inner, everyone, END - timedelta(minutes=12), 16)
    for house in (alder, elm):
        inner.ask(house.id, 300_000_000)
    CLOCK.now = END


def spendable(house: SeededOrganization) -> int:
    from billing.credit.selectors import spendable_nanos

    return spendable_nanos(house.id, CLOCK.now)


def said(now: datetime) -> dict[str, object]:
    """Return what the code of 2475970 says of the books at `now`."""
    from billing.metering.integrity import check_all

    from billing.credit.models import Lease
    from billing.metering.models import Tally, UsageEvent
    from control.tenants.models import Organization

    events = list(UsageEvent.objects.order_by("event_id"))
    return {
        "commit": "2475970",
        "now": now.isoformat(),
        "organizations": {
            one.id: organization_said(one, now) for one in Organization.objects.order_by("name")
        },
        "leases": {
            one.id: f"{one.budget_id} {one.settled_nanos} {one.held_nanos}"
            for one in Lease.objects.order_by("id")
        },
        "events": {str(one.event_id): f"{one.charged_nanos} {one.waived_nanos}" for one in events},
        "months_differ": [
            str(one.event_id)
            for one in events
            if moment_of(one).month != one.received_at.astimezone(UTC).month
        ],
        "tallies": [
            f"{one.organization_id or '-'} {one.kind} {one.day} {one.count}"
            for one in Tally.objects.order_by("day", "organization_id", "kind")
        ],
        "counterexamples": {one.sentence: one.counterexample_count for one in check_all()},
    }


def moment_of(event) -> datetime:
    from billing.metering.reading import id_moment

    return id_moment(event.event_id)


def organization_said(organization, now: datetime) -> dict[str, object]:
    from billing.metering.selectors import usage_series, usage_totals

    from billing.credit import selectors as credit
    from billing.ledger.models import Account

    months = [(date(2026, month, 1), at(month, 1, 0), at(month + 1, 1, 0)) for month in (10, 11)]
    days = usage_series(organization, START, now, "day")
    accounts: dict[str, int] = defaultdict(int)
    for account in Account.objects.filter(organization_id=organization.id):
        accounts[account.kind] += account.balance_nanos
    return {
        "name": organization.name,
        "billing_mode": organization.billing_mode,
        "balance_nanos": credit.balance(organization, now),
        "spendable_nanos": credit.spendable_nanos(organization.id, now),
        "owed_nanos": credit.owed_nanos(organization.id),
        "accounts": dict(sorted(accounts.items())),
        "grants": {
            grant.id: {
                "kind": grant.kind,
                "amount_nanos": grant.amount_nanos,
                "remaining_nanos": grant.remaining_nanos,
                "expires_at": grant.expires_at and grant.expires_at.isoformat(),
                "is_closed": grant.expired_at is not None,
            }
            for grant in credit.grants(organization)
        },
        "budgets": {
            one.id: budget_said(one, now, [first for first, _, _ in months])
            for one in (
                organization,
                *organization.projects.order_by("id"),
                *organization.keys.order_by("id"),
            )
        },
        "usage_by_day": {f"{one.bucket_at:%Y-%m-%d}": sums_said(one.sums) for one in days},
        "usage_by_month": {
            str(first): sums_said(usage_totals(organization, start, end))
            for first, start, end in months
        },
    }


def sums_said(sums) -> dict[str, object]:
    """Return the sums that are not zero."""
    values = dataclasses.asdict(sums)
    values["ttft_counts"] = " ".join(map(str, values["ttft_counts"]))
    return {name: value for name, value in values.items() if value}


def budget_said(owner, now: datetime, months: list[date]) -> dict[str, object]:
    from billing.credit.limits import available_nanos

    from billing.credit import selectors as credit

    return {
        "limit_nanos": owner.spend_limit_nanos,
        "charged_nanos": {str(month): credit.charged_nanos(owner.id, month) for month in months},
        "held_nanos": credit.held_nanos(owner.id),
        "available_nanos": available_nanos(owner.id, now),
    }


def dump() -> bytes:
    """Return the database as statements that any client may send, without psql's own words."""
    from infra.local.postgres import prepare

    folder = Path(os.environ["PENSTOCK_TEST_POSTGRES"])
    command = [
        str(prepare(folder / "data", port=0, password="").binaries / "pg_dump"),
        *("--no-owner", "--no-privileges", "--inserts", "--rows-per-insert=40"),
        os.environ["DATABASE_URL"],
    ]
    text = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    lines = (line for line in text.splitlines() if line and not line.startswith(("--", "\\")))
    return "\n".join(lines).encode() + b"\n"


def main(folder: Path) -> None:
    set_up()
    from tests.fixtures import postgres

    try:
        seven_weeks()
        with gzip.GzipFile(folder / "books_2475970.sql.gz", "wb", mtime=0) as file:
            file.write(dump())
        text = json.dumps(said(END), indent=1, sort_keys=True)
        (folder / "books_2475970.json").write_text(text + "\n")
    finally:
        postgres.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
