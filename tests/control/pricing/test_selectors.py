"""Price books: edited as drafts, published once, never changed by anybody."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from control.catalog.models import Variant
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.selectors import last_record
from control.pricing import selectors, services
from control.pricing.models import Price, PriceBook
from serving.contract.codec import decode
from serving.contract.records import PriceRecord
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_model, make_variant

METERS = {"input_nanos": 150_000_000, "cached_input_nanos": 75_000_000, "output_nanos": 600_000_000}


@pytest.fixture
def variant(db: None) -> Variant:
    return make_variant(make_model())


@pytest.fixture
def price(variant: Variant) -> Price:
    book = services.draft_book(actor=OPERATOR, name="First")
    return services.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)


def publish(price: Price, **fields: object) -> PriceBook:
    return services.publish_book(actor=OPERATOR, book=price.book, **fields)  # type: ignore[arg-type]


def test_a_draft_is_not_published(price: Price) -> None:
    assert last_record("price", price.id) is None
    assert selectors.prices_in_force(None, timezone.now()) == {}


def test_a_published_price_is_in_force_from_its_moment(price: Price) -> None:
    effective_at = timezone.now() + timedelta(hours=1)
    publish(price, effective_at=effective_at)
    record = last_record("price", price.id)
    assert record is not None
    assert decode(record.encode(), PriceRecord).effective_at == effective_at
    assert selectors.prices_in_force(None, effective_at - timedelta(seconds=1)) == {}
    assert selectors.prices_in_force(None, effective_at) == {price.variant_id: price}


def test_a_later_book_takes_over_for_what_it_prices(price: Price, variant: Variant) -> None:
    publish(price)
    other = make_variant(make_model("other"))
    book = services.draft_book(actor=OPERATOR, name="Second")
    services.set_price(actor=OPERATOR, book=book, variant=other, **METERS)
    services.publish_book(actor=OPERATOR, book=book)
    found = selectors.prices_in_force(None, timezone.now())
    assert found[variant.id] == price
    assert found[other.id].book_id == book.id


def test_a_price_of_a_draft_is_set_again(price: Price, variant: Variant) -> None:
    again = services.set_price(
        actor=OPERATOR, book=price.book, variant=variant, **(METERS | {"output_nanos": 1})
    )
    assert (again.id, again.output_nanos) == (price.id, 1)


@pytest.mark.parametrize(
    "meters", [{"input_nanos": -1}, {"output_nanos": -1}, {"cached_input_nanos": 150_000_001}]
)
def test_a_price_is_never_negative_nor_cached_input_dearer(
    price: Price, variant: Variant, meters: dict[str, int]
) -> None:
    with pytest.raises(InvalidValue):
        services.set_price(actor=OPERATOR, book=price.book, variant=variant, **(METERS | meters))


def test_a_published_book_refuses_every_service(price: Price, variant: Variant) -> None:
    book = publish(price)
    with pytest.raises(Conflict):
        services.set_price(actor=OPERATOR, book=book, variant=variant, **METERS)
    with pytest.raises(Conflict):
        services.remove_price(actor=OPERATOR, price=price)
    with pytest.raises(Conflict):
        services.update_book(actor=OPERATOR, book=book, changes={"name": "New"})
    with pytest.raises(Conflict):
        services.publish_book(actor=OPERATOR, book=book)


WRITES: dict[str, Callable[[Price], object]] = {
    "price update": lambda price: Price.objects.filter(id=price.id).update(output_nanos=1),
    "price delete": lambda price: Price.objects.filter(id=price.id).delete(),
    "price insert": lambda price: Price.objects.create(
        book=price.book, variant=price.variant, tier="batch", **METERS
    ),
    "book update": lambda price: PriceBook.objects.update(name="New"),
    "book withdrawal": lambda price: PriceBook.objects.update(published_at=None),
    "book delete": lambda price: PriceBook.objects.all()._raw_delete("default"),
}


@pytest.mark.parametrize("write", WRITES)
def test_the_database_itself_refuses_to_change_a_published_book(price: Price, write: str) -> None:
    publish(price)
    with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
        WRITES[write](price)


@pytest.mark.parametrize("write", ["price update", "price insert", "book update", "price delete"])
def test_the_database_lets_drafts_be_edited(price: Price, write: str) -> None:
    WRITES[write](price)


def test_prices_are_neither_backdated_nor_empty_nor_doubled(price: Price) -> None:
    with pytest.raises(InvalidValue, match="past"):
        publish(price, effective_at=timezone.now() - timedelta(seconds=1))
    empty = services.draft_book(actor=OPERATOR, name="Empty")
    with pytest.raises(InvalidValue, match="no prices"):
        services.publish_book(actor=OPERATOR, book=empty)
    moment = timezone.now() + timedelta(hours=1)
    publish(price, effective_at=moment)
    services.set_price(actor=OPERATOR, book=empty, variant=price.variant, **METERS)
    with pytest.raises(Conflict, match="takes effect"):
        services.publish_book(actor=OPERATOR, book=empty, effective_at=moment)


def test_customers_set_no_prices(org: SeededOrganization, price: Price) -> None:
    with pytest.raises(NotPermitted):
        services.publish_book(actor=org.actor, book=price.book)


def test_the_database_lets_one_book_take_effect_at_a_time(price: Price) -> None:
    """The service looks first; two that look at once are told apart here."""
    moment = publish(price).effective_at
    with pytest.raises(IntegrityError, match="one_book_takes_effect"), transaction.atomic():
        PriceBook.objects.create(name="Twin", effective_at=moment, published_at=timezone.now())
