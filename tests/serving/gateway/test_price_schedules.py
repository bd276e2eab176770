"""Which prices hold for whom and when: contracts before the list, the newest book, its bands."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from serving.contract.records import PriceRecord
from serving.gateway.directory import PriceList
from tests.fixtures.catalog import START, contract_price, price

DAY = timedelta(days=1)


def found(prices: PriceList, days: float = 0, **asked: Any) -> list[str] | None:
    asked = {"variant_id": "var_demo", "tier": "default", "organization_id": "org_a"} | asked
    schedule = prices.schedule(**asked, at=START + days * DAY)
    return None if schedule is None else [each.price_id for each in schedule]


def banded(name: str, *floors: int, days: int = 0) -> list[PriceRecord]:
    return [
        price(price_id=f"{name}{floor}", input_tokens_min=floor, effective_at=START + days * DAY)
        for floor in floors
    ]


def test_a_schedule_is_the_bands_of_one_book_the_base_first() -> None:
    prices = PriceList([*banded("b", 2_000, 0, 500, days=1), *banded("a", 0, 9)])
    assert found(prices) == ["a0", "a9"]
    assert found(prices, 1) == ["b0", "b500", "b2000"]


def test_a_schedule_that_lacks_its_base_leaves_the_one_before_in_force() -> None:
    prices = PriceList([*banded("a", 0), *banded("b", 500, days=1)])
    assert found(prices, 2) == ["a0"]


def test_tiers_and_variants_have_prices_of_their_own() -> None:
    prices = PriceList([price(), price(price_id="flex", tier="flex")])
    assert found(prices) == ["price_var_demo"]
    assert found(prices, tier="flex") == ["flex"]
    assert found(prices, tier="batch") is None
    assert found(prices, variant_id="var_other") is None


def test_a_contract_goes_before_the_list_for_its_organization_alone() -> None:
    prices = PriceList([price()], [contract_price("org_a", effective_at=START + DAY)])
    assert found(prices) == ["price_var_demo"]
    assert found(prices, 1) == ["price_org_a"]
    assert found(prices, 1, organization_id="org_b") == ["price_var_demo"]


def test_a_newer_list_price_does_not_touch_a_contract() -> None:
    prices = PriceList(
        [price(), price(price_id="new", effective_at=START + DAY)], [contract_price()]
    )
    assert found(prices, 2) == ["price_org_a"]
    assert found(prices, 2, organization_id="org_b") == ["new"]


@pytest.mark.parametrize(("days", "expected"), [(1, "brief"), (1.99, "brief"), (2, "list")])
def test_after_a_contracts_end_list_prices_hold_and_no_older_contract(
    days: float, expected: str
) -> None:
    endless = contract_price(price_id="endless")
    brief = msgspec.structs.replace(
        endless, price_id="brief", effective_at=START + DAY, ends_at=START + 2 * DAY
    )
    prices = PriceList([price(price_id="list")], [endless, brief])
    assert found(prices, days) == [expected]


def test_where_only_a_contract_prices_a_variant_nobody_else_gets_it() -> None:
    prices = PriceList([], [contract_price("org_a")])
    assert found(prices) == ["price_org_a"]
    assert found(prices, organization_id="org_b") is None
