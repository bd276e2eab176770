"""The oracle's own arithmetic, which shares no line with billing's."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from billing.simulation.oracle import BrokenError, due, month_of, received_at, require
from billing.simulation.world import Tariff
from serving.contract.ids import uuid7

AT = datetime(2026, 3, 31, 12, tzinfo=UTC)
TARIFF = Tariff("price_1", "model_1", "variant_1", 500_000, 500_000, 500_000, 0, AT, None)


def event(**changes):
    """One token of each meter, at half a nano each."""
    values = {
        "event_id": str(uuid7(at_ms=int(AT.timestamp() * 1000), random_bits=1)),
        "price_id": "price_1",
        "outcome": "completed",
        "input_tokens": 2,
        "cached_input_tokens": 1,
        "output_tokens": 1,
    }
    return SimpleNamespace(**values | changes)


def test_each_meter_is_rounded_half_up_by_itself():
    assert due(event(), [TARIFF]).charged_nanos == 3


@pytest.mark.parametrize(
    "changes", [{"outcome": "engine_failed"}, {"outcome": "gateway_lost"}, {"price_id": "other"}]
)
def test_what_nobody_pays_is_waived(changes):
    assert due(event(**changes), [TARIFF]).charged_nanos == 0


def test_a_moment_is_read_from_the_id():
    assert received_at(event().event_id) == AT
    assert month_of(AT) == datetime(2026, 3, 1, tzinfo=UTC)


def test_a_broken_promise_names_what_it_is_about():
    with pytest.raises(BrokenError, match="Nothing is owed: org_1, 5"):
        require(False, "Nothing is owed", "org_1", 5)
