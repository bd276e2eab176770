"""The life of a price book: bands, confirmation of what looks mis-keyed, cancelling, standing."""

from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from control.audit.models import AuditEvent
from control.catalog import services as catalog
from control.catalog.models import Variant
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.selectors import last_record
from control.pricing import selectors, services
from control.pricing.models import Price, PriceBook, ServiceTier
from control.pricing.price_changes import ConfirmationRequired, changes_in
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_model, make_variant

METERS = {"input_nanos": 150_000_000, "cached_input_nanos": 75_000_000, "output_nanos": 600_000_000}
HOUR = timedelta(hours=1)


@pytest.fixture
def variant(db: None) -> Variant:
    return make_variant(make_model())


@pytest.fixture
def price(variant: Variant) -> Price:
    """A list price in force."""
    price = draft(variant)
    services.publish_book(actor=OPERATOR, book=price.book)
    return price


def draft(
    variant: Variant, name: str = "Next", org: SeededOrganization | None = None, **meters: int
) -> Price:
    organization = org.organization if org else None
    book = services.draft_book(actor=OPERATOR, name=name, organization=organization)
    return services.set_price(actor=OPERATOR, book=book, variant=variant, **METERS | meters)


def publish(price: Price, **fields: object) -> PriceBook:
    return services.publish_book(actor=OPERATOR, book=price.book, **fields)  # type: ignore[arg-type]


def in_force(price: Price, at: datetime | None = None) -> list[str]:
    found = selectors.schedules_in_force(None, at or timezone.now(), tier=price.tier)
    return [each.id for each in found[price.variant_id]]


# Bands and tiers


def band(base: Price, floor: int, **meters: int) -> Price:
    return services.set_price(
        actor=OPERATOR, book=base.book, variant=base.variant, tier=base.tier,
        input_tokens_min=floor, **METERS | meters,
    )  # fmt: skip


def test_bands_are_in_force_together_and_go_together(variant: Variant) -> None:
    base = draft(variant)
    long = band(base, 128_000, input_nanos=300_000_000)
    longer = band(base, 256_000, input_nanos=450_000_000)
    publish(base)
    assert in_force(base) == [base.id, long.id, longer.id]
    after = draft(variant)
    publish(after, confirmation="publish Next with 1 unusual price")
    assert in_force(base) == [after.id]


def test_a_band_is_set_again_without_touching_its_base(variant: Variant) -> None:
    base = draft(variant)
    first, again = band(base, 200), band(base, 200, output_nanos=1)
    assert (first.id, again.output_nanos) == (again.id, 1)
    assert base.book.prices.count() == 2


def test_a_band_without_its_base_is_not_published(variant: Variant) -> None:
    base = draft(variant)
    band(base, 200)
    services.remove_price(actor=OPERATOR, price=base)
    with pytest.raises(InvalidValue, match="no base band"):
        publish(base)
    now = timezone.now()
    with pytest.raises(IntegrityError, match="without its base"), transaction.atomic():
        PriceBook.objects.filter(id=base.book_id).update(effective_at=now, published_at=now)


def test_each_tier_has_schedules_of_its_own(price: Price, variant: Variant) -> None:
    book = services.draft_book(actor=OPERATOR, name="Flex")
    flex = services.set_price(
        actor=OPERATOR, book=book, variant=variant, tier=ServiceTier.FLEX, **METERS
    )
    services.publish_book(actor=OPERATOR, book=book)
    assert (in_force(price), in_force(flex)) == ([price.id], [flex.id])
    assert selectors.prices_in_force(None, timezone.now(), tier=ServiceTier.BATCH) == {}


# What looks mis-keyed


SUSPICIOUS = [
    ({"output_nanos": 6_000_000_000}, ["output $0.60 → $6.00"]),  # ten times
    ({"output_nanos": 60_000_000}, ["output $0.60 → $0.06"]),  # a tenth
    ({"output_nanos": 900_000_001}, ["output $0.60 → $0.900000001"]),  # just over half more
    ({"output_nanos": 0}, ["output $0.60 → $0.00"]),
    (
        {"input_nanos": 15_000_000, "cached_input_nanos": 7_500_000},
        ["input $0.15 → $0.015", "cached input $0.075 → $0.0075"],
    ),
]


@pytest.mark.parametrize(("meters", "shown"), SUSPICIOUS)
def test_a_price_that_looks_mis_keyed_is_named_and_asks_for_words(
    price: Price, variant: Variant, meters: dict[str, int], shown: list[str]
) -> None:
    wrong = draft(variant, **meters)
    with pytest.raises(ConfirmationRequired) as refusal:
        publish(wrong)
    assert [str(each) for each in refusal.value.unusual] == [
        f"{variant} default {each}" for each in shown
    ]
    assert all(each in refusal.value.message for each in (*shown, refusal.value.sentence))
    assert (refusal.value.status, refusal.value.param) == (409, "confirmation")
    assert in_force(price) == [price.id]
    assert not PriceBook.objects.get(id=wrong.book_id).is_published


def test_the_exact_sentence_publishes_and_is_in_the_audit(price: Price, variant: Variant) -> None:
    dear = draft(variant, "Summer", output_nanos=6_000_000_000)
    for words in ("", "yes", "publish Summer", "Publish Summer with 1 unusual price"):
        with pytest.raises(ConfirmationRequired):
            publish(dear, confirmation=words)
    publish(dear, confirmation="publish Summer with 1 unusual price")
    assert in_force(price) == [dear.id]
    entry = AuditEvent.objects.get(action="price_book.published", target_id=dear.book_id)
    assert entry.details["confirmation"] == "publish Summer with 1 unusual price"


@pytest.mark.parametrize("output_nanos", [300_000_000, 600_000_000, 900_000_000])
def test_half_more_or_less_is_usual(price: Price, variant: Variant, output_nanos: int) -> None:
    publish(draft(variant, output_nanos=output_nanos))


FIRST = [
    # In force for the model's other variant: $0.15, $0.075 and $0.60.
    ("a sibling", {"output_nanos": 3_000_000_000}, None),
    ("a sibling", {"output_nanos": 3_000_000_001}, r"model's others, \$0.60 to \$0.60"),
    ("a sibling", {"output_nanos": 120_000_000}, None),
    ("a sibling", {"output_nanos": 119_999_999}, r"model's others, \$0.60 to \$0.60"),
    ("a sibling", {"cached_input_nanos": 0}, "first price of zero"),
    # A tier and a band of the same book are held against each other.
    ("a tier", {"output_nanos": 60_000_000_000}, "far from the model's others"),
    ("a band", {"output_nanos": 60_000_000_000}, "far from the model's others"),
    ("nothing", {"output_nanos": 100_000_000_000}, None),
    ("nothing", {"output_nanos": 320_000_000_000_000}, r"outside of \$0.001 to \$100"),
    ("nothing", {"cached_input_nanos": 999_999}, r"outside of \$0.001 to \$100"),
    ("nothing", {"cached_input_nanos": 0}, r"no price → \$0.00 \(a first price of zero"),
]


@pytest.mark.parametrize(("beside", "meters", "reason"), FIRST)
def test_a_first_price_has_bounds(
    variant: Variant, beside: str, meters: dict[str, int], reason: str | None
) -> None:
    if beside == "a sibling":
        publish(draft(variant))
        variant = make_variant(variant.model, "fp16")
    first = draft(variant, **meters)
    if beside == "a tier":
        services.set_price(
            actor=OPERATOR, book=first.book, variant=variant, tier=ServiceTier.FLEX, **METERS
        )
    if beside == "a band":
        band(first, 200)
    if reason is None:
        publish(first)
        return
    with pytest.raises(ConfirmationRequired, match=reason) as refusal:
        publish(first)
    publish(first, confirmation=refusal.value.sentence)


def test_a_first_price_is_confirmed_by_what_a_million_tokens_cost(variant: Variant) -> None:
    dear = draft(variant, input_nanos=320_000_000_000_000)
    with pytest.raises(ConfirmationRequired) as refusal:
        publish(dear)
    cost = "$320,000.00 for 1,000,000 input tokens"
    assert f"With {variant} default a customer will pay {cost}." in refusal.value.message
    amount = "1 million tokens for up to $320,000.00"
    assert refusal.value.sentence == f"publish Next with 1 unusual price, {amount}"


def test_embeddings_have_no_output_to_price(db: None) -> None:
    model = catalog.create_model(actor=OPERATOR, public_id="e", name="E", task="embed")
    publish(draft(make_variant(model, dimensions=8), output_nanos=0))


def test_a_price_that_stays_zero_is_asked_for_once(variant: Variant) -> None:
    amount = "1 million tokens for up to $0.00"
    publish(
        draft(variant, output_nanos=0),
        confirmation=f"publish Next with 1 unusual price, {amount}",
    )
    publish(draft(variant, output_nanos=0))


def test_a_first_contract_is_compared_with_the_list(
    org: SeededOrganization, price: Price, variant: Variant
) -> None:
    with pytest.raises(ConfirmationRequired, match=r"output \$0.60 → \$0.06"):
        publish(draft(variant, org=org, output_nanos=60_000_000))
    own = draft(variant, org=org, output_nanos=400_000_000)
    publish(own)
    with pytest.raises(ConfirmationRequired, match=r"output \$0.40 → \$0.10"):
        publish(draft(variant, org=org, output_nanos=100_000_000))


def test_a_price_is_compared_with_what_is_in_force_when_it_begins(
    price: Price, variant: Variant
) -> None:
    begins = timezone.now() + HOUR
    publish(draft(variant, output_nanos=900_000_000), effective_at=begins)
    third = draft(variant, output_nanos=1_200_000_000)
    with pytest.raises(ConfirmationRequired):
        publish(third, effective_at=begins - HOUR / 2)  # from $0.60
    publish(third, effective_at=begins + HOUR)  # from $0.90


def test_a_band_that_comes_or_goes_is_compared_where_it_begins(
    price: Price, variant: Variant
) -> None:
    base = draft(variant)
    band(base, 128_000, input_nanos=300_000_000)
    with pytest.raises(ConfirmationRequired, match=r"input from 128,000 tokens \$0.15 → \$0.30"):
        publish(base)
    publish(base, confirmation="publish Next with 1 unusual price")
    plain = draft(variant)
    changes = changes_in(plain.book, [plain], timezone.now())
    assert [str(each) for each in changes if each.new_nanos != each.old_nanos] == [
        f"{variant} default input from 128,000 tokens $0.30 → $0.15"
    ]


# Cancelling


def test_a_book_is_cancelled_before_it_takes_effect(price: Price, variant: Variant) -> None:
    later = draft(variant, "Later")
    book = publish(later, effective_at=timezone.now() + HOUR)
    assert last_record("price", later.id) is not None
    services.cancel_book(actor=OPERATOR, book=book)
    assert last_record("price", later.id) is None
    assert in_force(price, timezone.now() + 2 * HOUR) == [price.id]
    assert AuditEvent.objects.filter(action="price_book.cancelled", target_id=book.id).exists()
    publish(draft(variant), effective_at=book.effective_at)


def test_what_is_drafted_in_force_or_cancelled_is_not_cancelled(
    price: Price, variant: Variant
) -> None:
    later = draft(variant)
    for book, words in ((price.book, "active"), (later.book, "draft")):
        with pytest.raises(Conflict, match=words):
            services.cancel_book(actor=OPERATOR, book=book)
    book = services.cancel_book(
        actor=OPERATOR, book=publish(later, effective_at=timezone.now() + HOUR)
    )
    with pytest.raises(Conflict, match="is cancelled"):
        services.cancel_book(actor=OPERATOR, book=book)
    with pytest.raises(Conflict, match="never changes"):
        services.publish_book(actor=OPERATOR, book=book)


def test_customers_neither_cancel_nor_confirm(org: SeededOrganization, price: Price) -> None:
    with pytest.raises(NotPermitted):
        services.cancel_book(actor=org.actor, book=price.book)


def future(variant: Variant) -> PriceBook:
    return publish(draft(variant, "Future"), effective_at=timezone.now() + HOUR)


def test_the_database_lets_a_future_book_be_cancelled_and_nothing_else(variant: Variant) -> None:
    book, now = future(variant), timezone.now()
    rows = PriceBook.objects.filter(id=book.id)
    refused = [
        {"cancelled_at": now, "name": "New"},
        {"cancelled_at": now, "effective_at": now + 2 * HOUR},
        {"cancelled_at": now, "published_at": None},
    ]
    for changes in refused:
        with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
            rows.update(**changes)
    rows.update(cancelled_at=now)
    with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
        rows.update(cancelled_at=None)


def test_the_database_lets_no_book_in_force_be_cancelled(price: Price) -> None:
    earlier = price.book.created_at - HOUR
    with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
        PriceBook.objects.filter(id=price.book_id).update(cancelled_at=earlier)


# Standing


def test_a_price_stands_from_its_book_to_the_next_that_prices_the_same(
    org: SeededOrganization, price: Price, variant: Variant
) -> None:
    begins = timezone.now() + HOUR
    publish(draft(make_variant(make_model("other"))))
    publish(draft(variant, org=org))
    cancelled = draft(variant)
    book = publish(cancelled, effective_at=begins - HOUR / 2)
    services.cancel_book(actor=OPERATOR, book=book)
    publish(draft(variant), effective_at=begins)
    standing = selectors.price_validity([price.id, cancelled.id])
    stands = standing[price.id]
    assert (stands.variant_id, stands.tier, stands.organization_id) == (variant.id, "default", None)
    assert stands.superseded_at == begins
    instant = timedelta(microseconds=1)
    moments = [stands.effective_at - instant, stands.effective_at, begins - instant, begins]
    assert [stands.at(moment) for moment in moments] == [
        "not_yet", "in_force", "in_force", "superseded",
    ]  # fmt: skip
    assert standing[cancelled.id].at(begins) == "cancelled"


def test_a_price_that_nothing_followed_stands_for_ever(price: Price) -> None:
    stands = selectors.price_validity([price.id])[price.id]
    assert stands.superseded_at is None
    assert stands.at(timezone.now() + 10_000 * HOUR) == "in_force"


def test_drafts_and_unknown_prices_have_no_standing(price: Price, variant: Variant) -> None:
    assert set(selectors.price_validity([price.id, draft(variant).id, "price_none"])) == {price.id}


def test_a_contracts_price_is_open_to_its_organization_alone(
    org: SeededOrganization, outsider: SeededOrganization, price: Price, variant: Variant
) -> None:
    own = draft(variant, org=org)
    publish(own)
    standing = selectors.price_validity([price.id, own.id])
    assert standing[own.id].is_open_to(org.id)
    assert not standing[own.id].is_open_to(outsider.id)
    assert standing[price.id].is_open_to(outsider.id)
    assert standing[price.id].superseded_at is None


def test_a_band_takes_what_lies_below_the_next(variant: Variant) -> None:
    base = draft(variant)
    long = band(base, 200)
    publish(base)
    standing = selectors.price_validity([base.id, long.id])
    assert [standing[base.id].takes(count) for count in (0, 199, 200)] == [True, True, False]
    assert [standing[long.id].takes(count) for count in (199, 200, 10**9)] == [False, True, True]
