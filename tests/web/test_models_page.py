"""The models page shows an organization what it pays itself: its contract's, band by band."""

import pytest
from django.test import Client

from control.prices import services
from control.prices.models import Price
from tests.support.console import OPERATOR, Tenant
from web.console.page import address

pytestmark = pytest.mark.integration


@pytest.fixture
def contract(tenant: Tenant, prices: dict[str, Price]) -> Price:
    """$0.13, $0.05 and $0.50 of the tenant's own, and $0.1501 of input from 1,000 tokens."""
    book = services.draft_book(actor=OPERATOR, name="Own", organization=tenant.organization)
    meters = {"cached_input_nanos": 50_000_000, "output_nanos": 500_000_000}
    for floor, nanos in ((0, 130_000_000), (1_000, 150_100_000)):
        services.set_price(
            actor=OPERATOR, book=book, variant=prices["bf16"].variant,
            input_tokens_min=floor, input_nanos=nanos, **meters,
        )  # fmt: skip
    services.publish_book(actor=OPERATOR, book=book)
    return book.prices.get(input_tokens_min=0)


def shown(client: Client, tenant: Tenant) -> str:
    reply = client.get(address(tenant.organization, "models"))
    assert reply.status_code == 200
    return reply.content.decode()


def test_a_contract_is_shown_with_its_bands(
    member: Client, tenant: Tenant, contract: Price
) -> None:
    page = shown(member, tenant)
    for words in ("$0.13", "from 1,000 input tokens", "$0.1501", "by your contract"):
        assert words in page


def test_an_outsider_sees_list_prices_alone(
    stranger: Client, outsider: Tenant, contract: Price
) -> None:
    page = shown(stranger, outsider)
    assert "$0.15<" in page
    for words in ("$0.13", "input tokens</p>", "by your contract"):
        assert words not in page
