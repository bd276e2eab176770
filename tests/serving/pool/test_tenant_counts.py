"""What a crowd is given is what all of its organizations are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.pool.queue import Waiter
from serving.pool.slot_request import SlotRequest
from serving.pool.tier_queue import TierQueue

pytestmark = pytest.mark.unit
DEEDS = st.one_of(
    st.builds(
        SlotRequest,
        organization_id=st.sampled_from("abcdef"),
        weight=st.integers(1, 3),
        sequences=st.integers(1, 4),
    ),
    st.sampled_from(("serve", "leave", "end")),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 1.0), max_size=3),
)


@settings(max_examples=200)
@given(st.lists(DEEDS, max_size=60), st.integers(0, 9), st.floats(0, 9), st.floats(0, 3))
def test_it_is_counted_as_if_each_were_asked(
    deeds: list[SlotRequest | str | dict[str, float]], of: int, turns: float, more: float
) -> None:
    line, waiting, served = TierQueue(), [], []
    for deed in deeds:
        if isinstance(deed, SlotRequest):
            waiting.append(Waiter(deed, (), None))  # type: ignore[arg-type]
            line.join(waiting[-1])
        elif isinstance(deed, dict):
            line.set_weight_shares(deed)
        elif deed == "end" and served:
            line.end(served.pop())
        elif deed == "leave" and waiting:
            line.remove(waiting.pop())
        elif deed == "serve" and (first := line.first()) is not None:
            waiting.remove(first)
            served.append(line.serve(first))
    members = sorted(line.busy(), key=lambda one: one.tenant_id)
    own = members[of] if of < len(members) else None
    others = [one for one in members if one.waiting and one is not own]
    slots = sum(min(one.waiting + more, turns * one.effective_weight) for one in others)
    assert line._tenant_counts.slots(own, turns, more) == pytest.approx(slots)
    assert len(line._tenant_counts) == sum(one.waiting > 0 for one in members)
