"""Margin from hourly sums: the same money as from events, shared more coarsely, to the nano."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.economics import look as looking
from billing.economics.look import look, margins_by_variant
from billing.economics.margin import Margin, margins, summed
from billing.economics.margin_by_variant import Place, Sold, allot_pools, request_count
from billing.economics.replica_hours import ReplicaHour
from billing.following.archive import archive_day, drop_day
from billing.metering.ingest import ingest
from tests.fixtures.engines import HOUR, make_sample, send
from tests.fixtures.following import finish
from tests.fixtures.organizations import make_deployment
from tests.fixtures.usage import make_batch, make_event, roll_up

NANOS = st.integers(0, 10**15)
SOLD = {
    "dep_1": Sold("mdl", "var_1"),
    "dep_2": Sold("mdl", "var_2"),
    "dep_own": Sold("mdl", "var_1", "org_1"),
}
ONE_HOUR = timedelta(hours=1)


def make_hour(deployment_id="dep_1", hour=0, cost=0, busy=0):
    at = HOUR + hour * ONE_HOUR
    return ReplicaHour(
        "rep", deployment_id, at, at, at + ONE_HOUR, 0, 0, 0, 3_600, 0, 0, cost, busy, True
    )


NOW = HOUR + timedelta(days=95)
"""When all of it may be archived."""
HOURS = st.lists(
    st.builds(
        lambda deployment_id, hour, cost, share: make_hour(
            deployment_id, hour, cost, cost * share // 100
        ),
        st.sampled_from([*SOLD, "gone"]),
        st.integers(0, 3),
        NANOS,
        st.integers(0, 100),
    )
)
USED = st.dictionaries(
    st.builds(
        Place,
        st.sampled_from(["var_1", "var_2", "var_elsewhere"]),
        st.integers(0, 3).map(lambda hour: HOUR + hour * ONE_HOUR),
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
        max_size=4,
    ),
)


@pytest.mark.unit
@given(HOURS, USED, st.sampled_from(["hour", "day"]))
def test_idle_and_shares_are_the_whole_cost_and_no_revenue_is_lost(hours, used, step):
    rows = allot_pools(hours, used, SOLD, step)
    assert sum(row.cost_nanos for row in rows) == sum(hour.cost_nanos for hour in hours)
    assert all(row.cost_nanos >= 0 for row in rows)
    assert sum(row.replica_seconds for row in rows) == 3_600 * len(hours)
    paid = sum(row.revenue_nanos for parts in used.values() for row in parts)
    assert sum(row.revenue_nanos for row in rows) == paid


def costs(rows):
    return {row.organization_id: row.cost_nanos for row in rows}


def revenues(rows):
    return {row.organization_id: row.revenue_nanos for row in rows}


def used(**tokens):
    rows = [Margin("mdl", "var_1", org, count, 0, 0) for org, count in tokens.items()]
    return {Place("var_1", HOUR): rows}


@pytest.mark.unit
def test_a_dedicated_replica_is_its_owners_alone_who_shares_no_other():
    hours = [make_hour("dep_own", cost=100, busy=60), make_hour("dep_1", cost=90, busy=50)]
    rows = allot_pools(hours, used(org_1=1_000, org_2=10), SOLD, "hour")
    assert costs(rows) == {"org_1": 60, "org_2": 50, None: 80}


@pytest.mark.unit
def test_an_owner_who_alone_used_the_variant_pays_for_the_shared_replicas_too():
    hours = [make_hour("dep_own", cost=100, busy=60), make_hour("dep_1", cost=90, busy=50)]
    assert costs(allot_pools(hours, used(org_1=1_000), SOLD, "hour")) == {"org_1": 110, None: 80}


@pytest.mark.integration
@pytest.mark.django_db
def test_events_and_rollups_say_the_same_of_money_and_differ_in_shares_alone(
    customer, outsider, price
):
    deployment = make_deployment(price.variant, hourly_cost_nanos=1_000_000)
    served = {"deployment_id": deployment.id}
    events = [
        make_event(
            who, price, received_at=HOUR + timedelta(minutes=5 + 60 * hour), **served, **more
        )
        for hour, who, more in [
            (0, customer, {}),
            (0, outsider, {"replica_id": "rep_2", "output_tokens": 500}),
            (1, outsider, {"outcome": "engine_failed"}),
        ]
    ]
    ingest(make_batch(events), now=HOUR + timedelta(hours=2))
    for replica_id in ("rep_1", "rep_2"):
        figures = {"deployment_id": deployment.id, "busy_seconds": 900}
        send(make_sample(60, replica_id, **figures))
    roll_up()
    end = HOUR + timedelta(hours=2)
    closely = margins(HOUR, end)
    for step in ("hour", "day"):
        coarsely = margins_by_variant(HOUR, end, step)
        [one], [other] = (summed(rows, ()) for rows in (closely, coarsely))
        assert one == other
        revenue = [
            {row.organization_id: row.revenue_nanos for row in r} for r in (closely, coarsely)
        ]
        assert revenue[0] == revenue[1]
    # 250,000 nanos of each replica were busy: one each, or 500,000 by 1,020 and 1,500 tokens
    assert costs(closely)[customer.id] == 250_000
    assert costs(margins_by_variant(HOUR, end, "hour"))[customer.id] == 202_381  # of 202,380.95
    assert request_count(HOUR, end) == 3


@pytest.mark.integration
@pytest.mark.django_db
def test_much_usage_is_looked_at_less_closely(customer, price, monkeypatch):
    ingest(make_batch([make_event(customer, price, received_at=HOUR)]), now=HOUR + ONE_HOUR)
    roll_up()
    assert look(HOUR, HOUR + ONE_HOUR, now=NOW).basis == "replica"
    with monkeypatch.context() as many_replicas:
        many_replicas.setattr(looking, "HOURS_CLOSELY_MAX", -1)
        assert look(HOUR, HOUR + ONE_HOUR, now=NOW).basis == "hour"
    monkeypatch.setattr(looking, "CLOSELY_MAX", 0)
    assert look(HOUR, HOUR + ONE_HOUR, now=NOW).basis == "hour"
    long = look(HOUR - timedelta(days=9), HOUR + ONE_HOUR, now=NOW)
    assert (long.basis, long.request_count) == ("day", 1)
    assert sum(row.revenue_nanos for row in long.rows) == 132_000


@pytest.mark.integration
@pytest.mark.django_db(transaction=True, databases=["default", "owner"])
def test_days_whose_requests_are_in_files_alone_keep_their_revenue(customer, price, tmp_path):
    deployment = make_deployment(price.variant, hourly_cost_nanos=1_000_000)
    event = make_event(customer, price, received_at=HOUR, deployment_id=deployment.id)
    ingest(make_batch([event]), now=HOUR + ONE_HOUR)
    send(make_sample(60, "rep_1", deployment_id=deployment.id, busy_seconds=900))
    finish(NOW)
    before = look(HOUR, HOUR + ONE_HOUR, now=NOW)
    assert (before.basis, before.is_archived) == ("replica", False)
    archive_day(HOUR.date(), folder=tmp_path, now=NOW)
    drop_day(HOUR.date(), now=NOW)
    after = look(HOUR, HOUR + ONE_HOUR, now=NOW)
    assert (after.basis, after.is_archived) == ("hour", True)
    assert summed(after.rows, ()) == summed(before.rows, ())
    assert (revenues(after.rows), costs(after.rows)) == (revenues(before.rows), costs(before.rows))
    assert revenues(after.rows)[customer.id] == 132_000
    midnight = HOUR.replace(hour=0) + timedelta(days=1)
    assert not look(midnight, midnight + ONE_HOUR, now=NOW).is_archived
    assert not look(HOUR - timedelta(days=2), midnight - timedelta(days=1), now=NOW).is_archived
