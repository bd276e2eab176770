"""Contracts: one organization's own prices, before the list, and nobody else's business."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.test import APIClient

from control.catalog.models import Variant
from control.errors import InvalidValue
from control.feed.selectors import last_record
from control.pricing import selectors, services
from control.pricing.models import Price, PriceBook
from serving.contract.codec import decode
from serving.contract.records import ContractPriceRecord
from tests.fixtures.organizations import OPERATOR, SeededOrganization, make_model, make_variant
from web.console.offers import variant_options

LIST = {"input_nanos": 150_000_000, "cached_input_nanos": 75_000_000, "output_nanos": 600_000_000}
OWN = {"input_nanos": 100_000_000, "cached_input_nanos": 50_000_000, "output_nanos": 400_000_000}
DAY = timedelta(days=1)


@pytest.fixture
def variant(db: None) -> Variant:
    return make_variant(make_model())


@pytest.fixture
def listed(variant: Variant) -> Price:
    return publish(variant, LIST, name="List")


@pytest.fixture
def own(org: SeededOrganization, variant: Variant, listed: Price) -> Price:
    return publish(variant, OWN, name="Contract", organization=org.organization)


def publish(variant: Variant, meters: dict[str, int], **book_fields: object) -> Price:
    book = services.draft_book(actor=OPERATOR, **book_fields)  # type: ignore[arg-type]
    price = services.set_price(actor=OPERATOR, book=book, variant=variant, **meters)
    services.publish_book(actor=OPERATOR, book=book, effective_at=book.effective_at)
    return price


def test_it_is_published_under_a_kind_of_its_own(org: SeededOrganization, own: Price) -> None:
    raw = last_record("contract_price", own.id)
    assert raw is not None
    record = decode(raw.encode(), ContractPriceRecord)
    assert (record.organization_id, record.output_nanos) == (org.id, 400_000_000)
    assert record.ends_at is None
    assert last_record("price", own.id) is None


def test_it_is_in_force_for_its_organization_alone(
    org: SeededOrganization, outsider: SeededOrganization, listed: Price, own: Price
) -> None:
    now = timezone.now()
    assert selectors.prices_in_force(org.organization, now) == {own.variant_id: own}
    for other in (outsider.organization, None):
        assert selectors.prices_in_force(other, now) == {listed.variant_id: listed}


def test_it_does_not_cover_what_it_does_not_price(org: SeededOrganization, own: Price) -> None:
    other = publish(make_variant(make_model("other")), LIST, name="Later list")
    found = selectors.prices_in_force(org.organization, timezone.now())
    assert found == {own.variant_id: own, other.variant_id: other}


def test_a_newer_list_leaves_it_in_force(
    org: SeededOrganization, variant: Variant, own: Price
) -> None:
    publish(variant, LIST, name="Newer list")
    found = selectors.prices_in_force(org.organization, timezone.now())
    assert found[variant.id] == own


def test_after_its_end_the_list_holds_and_no_older_contract(
    org: SeededOrganization, variant: Variant, listed: Price, own: Price
) -> None:
    starts_at = timezone.now() + DAY
    brief = publish(
        variant, OWN, name="Brief", organization=org.organization,
        effective_at=starts_at, ends_at=starts_at + DAY,
    )  # fmt: skip
    moments = [starts_at - DAY / 2, starts_at, starts_at + DAY]
    found = [selectors.prices_in_force(org.organization, at)[variant.id] for at in moments]
    assert found == [own, brief, listed]
    assert selectors.price_validity([brief.id])[brief.id].superseded_at == starts_at + DAY


def test_two_organizations_contracts_may_begin_at_once(
    org: SeededOrganization, outsider: SeededOrganization, variant: Variant
) -> None:
    at = timezone.now() + DAY
    for each in (org, outsider):
        publish(variant, OWN, name="Own", organization=each.organization, effective_at=at)
    publish(variant, LIST, name="List", effective_at=at)
    assert PriceBook.objects.filter(effective_at=at).count() == 3


def test_only_contracts_end_and_after_they_begin(org: SeededOrganization, variant: Variant) -> None:
    at = timezone.now() + DAY
    with pytest.raises(InvalidValue, match="list_prices_have_no_end"):
        services.draft_book(actor=OPERATOR, name="List", ends_at=at)
    with pytest.raises(InvalidValue, match="contract_ends_after_it_begins"):
        services.draft_book(
            actor=OPERATOR, name="Own", organization=org.organization,
            effective_at=at, ends_at=at,
        )  # fmt: skip
    book = services.draft_book(
        actor=OPERATOR, name="Own", organization=org.organization, ends_at=at
    )
    services.set_price(actor=OPERATOR, book=book, variant=variant, **OWN)
    with pytest.raises(InvalidValue, match="ends after"):
        services.publish_book(actor=OPERATOR, book=book, effective_at=at)


def test_the_database_keeps_a_published_contract_its_organizations(
    org: SeededOrganization, outsider: SeededOrganization, own: Price
) -> None:
    with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
        PriceBook.objects.filter(id=own.book_id).update(organization=outsider.organization)


def test_the_api_shows_the_callers_own_price(api: APIClient, base: str, own: Price) -> None:
    (variant,) = api.get(f"{base}/models").json()["data"][0]["variants"]
    assert (variant["price"]["price_id"], variant["price"]["is_contract"]) == (own.id, True)


def test_an_outsider_sees_the_list_price_and_nothing_of_the_contract(
    stranger: APIClient, outsider: SeededOrganization, listed: Price, own: Price
) -> None:
    reply = stranger.get(f"/api/v1/organizations/{outsider.id}/models")
    (variant,) = reply.json()["data"][0]["variants"]
    assert (variant["price"]["price_id"], variant["price"]["is_contract"]) == (listed.id, False)
    assert own.id not in reply.content.decode()


def test_the_console_offers_the_callers_own_price(
    org: SeededOrganization, outsider: SeededOrganization, listed: Price, own: Price
) -> None:
    assert [offer.price for offer in variant_options(org.organization)] == [own]
    assert [offer.price for offer in variant_options(outsider.organization)] == [listed]


def test_a_variant_that_only_a_contract_prices_is_no_offer_for_others(
    org: SeededOrganization, outsider: SeededOrganization, variant: Variant
) -> None:
    own = publish(variant, OWN, name="Own", organization=org.organization)
    assert [offer.price for offer in variant_options(org.organization)] == [own]
    assert variant_options(outsider.organization) == []
