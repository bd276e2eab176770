"""Leases by page: what a gateway encodes billing decodes, and back; what cannot be is refused by
name."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.contract.codec import ContractError, decode, encode
from serving.contract.lease import (
    ASKS_MAX,
    RETURNS_MAX,
    LeaseAsk,
    LeaseDeferral,
    LeaseDenial,
    LeaseGrant,
    LeaseReply,
    LeaseRequest,
    LeaseReturn,
)
from serving.contract.units import INT64_MAX

pytestmark = pytest.mark.unit
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
NANOS = st.integers(0, INT64_MAX)
IDS = st.from_regex(r"[A-Za-z0-9_.:-]{1,64}", fullmatch=True)
NOW = datetime(2026, 11, 23, tzinfo=UTC)

ASKS = st.builds(LeaseAsk, IDS, IDS, NANOS, NANOS, MOMENTS, st.booleans())
RETURNS = st.builds(LeaseReturn, IDS, NANOS, st.booleans())
REQUESTS = st.builds(
    LeaseRequest,
    IDS,
    MOMENTS,
    IDS,
    st.lists(ASKS, max_size=4).map(tuple),
    st.lists(RETURNS, max_size=4).map(tuple),
)
CODES = st.sampled_from(["credit_balance_exhausted", "key_budget_exceeded"])
ANSWERS = st.one_of(
    st.builds(LeaseGrant, IDS, IDS, IDS, NANOS, MOMENTS, MOMENTS, MOMENTS, st.none() | MOMENTS),
    st.builds(LeaseDeferral, IDS, IDS),
    st.builds(LeaseDenial, IDS, IDS, CODES, NANOS, st.booleans(), st.none() | NANOS),
)
IDS_OF_SOME = st.lists(IDS, max_size=4).map(tuple)
REPLIES = st.builds(
    LeaseReply, IDS, st.lists(ANSWERS, max_size=4).map(tuple), IDS_OF_SOME, IDS_OF_SOME
)
ASK = LeaseAsk("ask_1", "balance:org_1", 1, 2, NOW)
RETURN = LeaseReturn("lease_1", 0, closed=True)


@given(REQUESTS)
def test_requests_survive_the_journey(request: LeaseRequest) -> None:
    assert decode(encode(request), LeaseRequest) == request


@given(REPLIES)
def test_replies_survive_the_journey(reply: LeaseReply) -> None:
    assert decode(encode(reply), LeaseReply) == reply


@given(
    st.sampled_from(["need_nanos", "want_nanos"]),
    st.one_of(st.integers(max_value=-1), st.integers(INT64_MAX + 1, 2**64), st.just("1")),
)
def test_money_out_of_bounds_is_refused_by_name(name: str, value: object) -> None:
    raw = msgspec.json.decode(encode(ASK)) | {name: value}
    asked = msgspec.json.decode(encode(LeaseRequest("gw_1", NOW))) | {"asks": [raw]}
    with pytest.raises(ContractError, match=name):
        decode(msgspec.json.encode(asked), LeaseRequest)


@pytest.mark.parametrize(
    ("name", "one", "most"), [("asks", ASK, ASKS_MAX), ("returns", RETURN, RETURNS_MAX)]
)
def test_a_page_is_bounded(name: str, one: msgspec.Struct, most: int) -> None:
    raw = msgspec.json.decode(encode(LeaseRequest("gw_1", NOW)))
    assert decode(msgspec.json.encode(raw | {name: [one] * most}), LeaseRequest)
    with pytest.raises(ContractError, match=name):
        decode(msgspec.json.encode(raw | {name: [one] * (most + 1)}), LeaseRequest)
