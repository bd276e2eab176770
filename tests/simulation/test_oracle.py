"""The oracle's own arithmetic, which shares no line with billing's."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from serving.contract.ids import uuid7
from tests.simulation.oracle import BrokenError, due, ends_at, month_of, received_at, require
from tests.simulation.world import Caller, Tariff

AT = datetime(2026, 3, 31, 12, tzinfo=UTC)
CALLERS = [Caller("org_1", "proj_1", "key_1")]
TARIFF = Tariff("price_1", "model_1", "variant_1", 500_000, 500_000, 500_000, 0, AT, None)


def event(**changes):
    """One token of each meter, at half a nano each."""
    values = {
        "event_id": uuid7(at_ms=int(AT.timestamp() * 1000), random_bits=1),
        "organization_id": "org_1",
        "project_id": "proj_1",
        "key_id": "key_1",
        "variant_id": "variant_1",
        "tier": "default",
        "price_id": "price_1",
        "rating": 2,
        "outcome": "completed",
        "input_tokens": 2,
        "cached_input_tokens": 1,
        "output_tokens": 1,
    }
    return SimpleNamespace(**values | changes)


def test_each_meter_is_rounded_half_up_by_itself():
    assert due(event(), [TARIFF], CALLERS).charged_nanos == 3


def test_the_first_rule_rounds_the_sum_once():
    charged = due(event(rating=1), [TARIFF], CALLERS)
    assert (charged.input_nanos, charged.cached_input_nanos, charged.output_nanos) == (1, 0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "engine_failed"},
        {"outcome": "gateway_lost"},
        {"price_id": "other"},
        {"key_id": "key_2"},
        {"variant_id": "variant_2"},
        {"tier": "flex"},
    ],
)
def test_what_nobody_pays_is_waived(changes):
    assert due(event(**changes), [TARIFF], CALLERS).charged_nanos == 0


def test_a_moment_is_read_from_the_id():
    assert received_at(event().event_id) == AT
    assert month_of(AT) == datetime(2026, 3, 1, tzinfo=UTC)


def test_a_broken_promise_names_what_it_is_about():
    with pytest.raises(BrokenError, match="Nothing is owed: org_1, 5"):
        require(False, "Nothing is owed", "org_1", 5)


@pytest.mark.parametrize(
    ("budget_id", "starts", "ends"),
    [
        ("balance:org_1", (1970, 1, 1), None),
        ("limit:org_1", (2026, 2, 1), (2026, 3, 1)),
        ("limit:org_1", (2026, 12, 1), (2027, 1, 1)),
        ("limit:key_1:week", (2026, 3, 30), (2026, 4, 6)),
        ("limit:key_1:day", (2026, 3, 31), (2026, 4, 1)),
    ],
)
def test_a_period_ends_where_the_next_begins(budget_id, starts, ends):
    wanted = None if ends is None else datetime(*ends, tzinfo=UTC)
    assert ends_at(budget_id, datetime(*starts, tzinfo=UTC)) == wanted
