"""Control, the gateway and billing answer alike which prices are in force, whatever they are."""

from datetime import datetime, timedelta
from itertools import zip_longest
from random import Random

import pytest
from django.utils import timezone

from control.catalog.models import Variant
from control.feed.models import PublishedChange
from control.organizations.models import Organization
from control.pricing import selectors, services
from control.pricing.models import PriceBook, ServiceTier
from control.pricing.price_changes import ConfirmationRequired
from serving.contract.codec import decode
from serving.contract.feed import RECORD_OF_KIND
from serving.feed.changes import ChangeBatch, RecordChange
from serving.gateway.directory import Directory
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_model, make_variant

HOUR = timedelta(hours=1)
TIERS = [ServiceTier.DEFAULT, ServiceTier.FLEX]
BOOKS = 12


def publish_any(
    random: Random, variants: list[Variant], organizations: list[Organization], start: datetime
) -> None:
    """Publish a book of some prices that begins within the next day; cancel one in four."""
    organization = random.choice([None, *organizations])
    effective_at = start + random.uniform(1, 24) * HOUR
    ends_at = effective_at + 3 * HOUR if organization and random.random() < 0.5 else None
    book = services.draft_book(
        actor=OPERATOR, name="Any", organization=organization, ends_at=ends_at
    )
    for variant in random.sample(variants, random.randint(1, len(variants))):
        for floor in {0, random.choice([0, 200, 400])}:
            price_any(random, book, variant, random.choice(TIERS) if floor == 0 else None, floor)
    publish_confirmed(book, effective_at)
    if random.random() < 0.25:
        services.cancel_book(actor=OPERATOR, book=book)


def price_any(
    random: Random, book: PriceBook, variant: Variant, tier: str | None, floor: int
) -> None:
    nanos = random.randint(1, 10**9)
    for each in [tier] if tier else TIERS:
        based = selectors.price_of(book, variant, each, 0)
        if floor == 0 or based:
            services.set_price(
                actor=OPERATOR, book=book, variant=variant, tier=each, input_tokens_min=floor,
                input_nanos=nanos, cached_input_nanos=nanos // 2, output_nanos=nanos,
            )  # fmt: skip


def publish_confirmed(book: PriceBook, effective_at: datetime) -> None:
    try:
        services.publish_book(actor=OPERATOR, book=book, effective_at=effective_at)
    except ConfirmationRequired as unusual:
        services.publish_book(
            actor=OPERATOR, book=book, effective_at=effective_at, confirmation=unusual.sentence
        )


def published() -> ChangeBatch:
    """Return every change of a price as a gateway takes it in, in order."""
    changes = PublishedChange.objects.filter(kind__in=("price", "contract_price")).order_by(
        "version"
    )
    updates = [
        RecordChange(each.kind, each.record_id, each.record and decode(each.record.encode(), kind))
        for each in changes
        for kind in [RECORD_OF_KIND[each.kind]]
    ]
    return ChangeBatch(len(updates), False, tuple(updates))


@pytest.mark.parametrize("seed", range(4))
def test_all_three_agree(org: SeededOrganization, outsider: SeededOrganization, seed: int) -> None:
    random, start = Random(seed), timezone.now()
    variants = [make_variant(make_model(name)) for name in ("one", "two")]
    organizations = [org.organization, outsider.organization]
    for _ in range(BOOKS):
        publish_any(random, variants, organizations, start)
    directory = Directory("salt")
    directory.apply(published())
    for moment in [start + random.uniform(0, 30) * HOUR for _ in range(8)]:
        for organization in organizations:
            for tier in TIERS:
                compare(directory, organization, moment, tier, variants)


def compare(
    directory: Directory,
    organization: Organization,
    moment: datetime,
    tier: str,
    variants: list[Variant],
) -> None:
    ours = selectors.schedules_in_force(organization, moment, tier=tier)
    for variant in variants:
        bands = ours.get(variant.id, ())
        theirs = directory.schedule(variant.id, organization.id, moment, tier)  # type: ignore[arg-type]
        assert [price.price_id for price in theirs or ()] == [price.id for price in bands]
        standing = selectors.price_validity(price.id for price in bands)
        for price, next_price in zip_longest(bands, bands[1:]):
            stands = standing[price.id]
            assert stands.at(moment) == "in_force"
            assert stands.is_open_to(organization.id)
            assert stands.input_tokens_below == (next_price and next_price.input_tokens_min)
