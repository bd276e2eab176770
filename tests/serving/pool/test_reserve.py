"""What is kept free of less urgent tiers: a part of all slots, more of a gateway's part of them."""

from hypothesis import given
from hypothesis import strategies as st

from serving.pool.reserve import Reserve


@given(st.integers(1, 512), st.integers(1, 16), st.integers(1, 2), st.floats(0.0, 1.0))
def test_a_request_can_always_run_by_itself(
    of: int, gateways: int, tiers: int, share: float
) -> None:
    kept = Reserve(share).slots(tiers, of, of * gateways)
    assert 0 <= kept <= of - 1


def test_a_gateway_with_a_third_of_the_slots_keeps_more_than_a_third() -> None:
    reserve = Reserve(0.08)
    assert reserve.slots(1, of=64, total=64) == 5
    assert reserve.slots(1, of=21, total=64) == 3
    assert reserve.slots(2, of=21, total=64) == 6


def test_nothing_is_kept_where_nothing_is_wanted() -> None:
    assert Reserve(0.0).slots(2, of=21, total=64) == 0
