"""Margin: whoever shares a replica's hours, shares and idle cost add up to its whole cost."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.economics.margin import Margin, allot, margins, share_out, summed
from billing.economics.replica_hours import ReplicaHour
from billing.metering.ingest import ingest
from control.pricing.models import Price
from tests.fixtures.engines import HOUR, make_sample, send
from tests.fixtures.organizations import make_deployment
from tests.fixtures.usage import Customer, make_batch, make_event

SOLD = {"dep_1": ("mdl", "var_1"), "dep_2": ("mdl", "var_2")}
NANOS = st.integers(0, 10**15)


@st.composite
def hours(draw: st.DrawFn) -> ReplicaHour:
    cost_nanos = draw(NANOS)
    hour_at = HOUR + timedelta(hours=draw(st.integers(0, 3)))
    return make_hour(
        replica_id=draw(st.sampled_from(["rep_1", "rep_2"])),
        deployment_id=draw(st.sampled_from(["dep_1", "dep_2", "gone"])),
        hour_at=hour_at,
        cost_nanos=cost_nanos,
        busy_cost_nanos=draw(st.integers(0, cost_nanos)),
    )


USED = st.dictionaries(
    st.tuples(
        st.sampled_from(["", "rep_1", "rep_2", "external"]),
        st.integers(0, 3).map(lambda hour: HOUR + timedelta(hours=hour)),
    ),
    st.lists(
        st.builds(
            Margin,
            st.just("mdl"),
            st.sampled_from(["var_1", "var_2"]),
            st.sampled_from(["org_1", "org_2", "org_3"]),
            st.integers(0, 10**9),
            st.integers(0, 10**9),
            NANOS,
        ),
        max_size=5,
    ),
)


def make_hour(**fields: Any) -> ReplicaHour:
    values = {
        "replica_id": "rep_1", "deployment_id": "dep_1", "hour_at": HOUR, "begins_at": HOUR,
        "ends_at": HOUR, "input_tokens": 0, "output_tokens": 0, "requests": 0, "seconds": 3_600,
        "ready_seconds": 0, "busy_seconds": 0, "cost_nanos": 0, "busy_cost_nanos": 0,
        "is_cost_known": True, **fields,
    }  # fmt: skip
    return ReplicaHour(**values)


@pytest.mark.unit
@given(NANOS, st.lists(st.integers(0, 10**12)))
def test_shares_add_up_to_the_nano_and_follow_the_weights(nanos: int, weights: list[int]) -> None:
    shares = share_out(nanos, weights)
    assert sum(shares) == (nanos if sum(weights) else 0)
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share * sum(weights) - nanos * weight) < max(1, sum(weights))


@pytest.mark.unit
@given(st.lists(hours()), USED)
def test_idle_and_shares_are_the_whole_cost_and_no_revenue_is_lost(
    hours: list[ReplicaHour], used: dict[Any, list[Margin]]
) -> None:
    rows = allot(hours, used, SOLD)
    assert sum(row.cost_nanos for row in rows) == sum(hour.cost_nanos for hour in hours)
    assert all(row.cost_nanos >= 0 for row in rows)
    assert sum(row.replica_seconds for row in rows) == sum(hour.seconds for hour in hours)
    paid = sum(row.revenue_nanos for parts in used.values() for row in parts)
    assert sum(row.revenue_nanos for row in rows) == paid
    for by in (("model",), ("variant",), ("organization",), ()):
        parts = summed(rows, by)
        assert sum(part.margin_nanos for part in parts) == sum(row.margin_nanos for row in rows)


@pytest.mark.unit
def test_two_organizations_and_idle_time() -> None:
    hour = make_hour(cost_nanos=1_000, busy_cost_nanos=400)
    used = {
        ("rep_1", HOUR): [
            Margin("mdl", "var_1", "org_1", 200, 100, revenue_nanos=5_000),
            Margin("mdl", "var_1", "org_2", 50, 50, revenue_nanos=20),
        ]
    }
    # 400 nanos for 300 and 100 tokens; 600 for nobody
    idle, first, second = allot([hour], used, SOLD)
    assert (idle.organization_id, idle.cost_nanos, idle.replica_seconds) == (None, 600, 3_600)
    assert (first.organization_id, first.cost_nanos, first.margin_nanos) == ("org_1", 300, 4_700)
    assert (second.organization_id, second.cost_nanos, second.margin_nanos) == ("org_2", 100, -80)


@pytest.mark.unit
def test_an_unknown_cost_is_said_of_whoever_it_concerns() -> None:
    hour = make_hour(is_cost_known=False)
    used = {("rep_1", HOUR): [Margin("mdl", "var_1", "org_1", 5, 5, 7)]}
    assert {row.is_cost_known for row in allot([hour], used, SOLD)} == {False}
    assert {row.is_cost_known for row in allot([], used, SOLD)} == {True}


@pytest.mark.integration
@pytest.mark.django_db
def test_replicas_events_and_costs_meet_in_the_database(
    customer: Customer, outsider: Customer, price: Price
) -> None:
    deployment = make_deployment(price.variant, hourly_cost_nanos=1_000_000)
    received_at = HOUR + timedelta(minutes=5)
    served = {"received_at": received_at, "deployment_id": deployment.id}
    events = [
        make_event(customer, price, **served),
        make_event(customer, price, **served, outcome="engine_failed"),
        make_event(outsider, price, **served, output_tokens=1_040),
        make_event(outsider, price, **served, replica_id="external"),
    ]
    assert ingest(make_batch(events), now=HOUR + timedelta(hours=1)).accepted == 4
    send(make_sample(30, deployment_id=deployment.id, busy_seconds=900))
    idle, theirs, mine = margins(HOUR, HOUR + timedelta(hours=2))
    # half an hour costs 500,000, half of it busy: 250,000 for 2 * 1,020 and 2,040 tokens
    assert (idle.organization_id, idle.cost_nanos, idle.replica_seconds) == (None, 250_000, 1_800)
    assert (theirs.organization_id, theirs.cost_nanos) == (outsider.id, 125_000)
    assert (mine.organization_id, mine.cost_nanos) == (customer.id, 125_000)
    assert mine.revenue_nanos == 132_000
    assert theirs.revenue_nanos == 132_000 + 132_000 + 1_020 * 600
    assert {row.variant_id for row in (idle, theirs, mine)} == {price.variant_id}
    assert margins(HOUR + timedelta(hours=1), HOUR + timedelta(hours=2)) == []
