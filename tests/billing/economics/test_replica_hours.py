"""A replica's hours: what lies between its samples, counted once, and what that cost."""

from datetime import timedelta

import pytest

from billing.economics.replica_hours import deployment_hours, hour_count, replica_hours
from tests.fixtures.engines import HOUR, make_sample, send
from tests.fixtures.organizations import make_deployment, make_model, make_variant

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
DAY = HOUR + timedelta(hours=12)


def test_hours_are_differences_without_the_fleets_own_probes():
    send(
        make_sample(30, input_tokens=100, output_tokens=50, requests=5, probe_input_tokens=10),
        make_sample(60.01, input_tokens=300, output_tokens=90, requests=9, probe_input_tokens=10),
        make_sample(61, input_tokens=301, output_tokens=98, requests=10, probe_output_tokens=8),
    )
    first, second = replica_hours(HOUR, DAY)
    assert (first.input_tokens, first.output_tokens, first.requests) == (290, 90, 9)
    assert (second.input_tokens, second.output_tokens, second.requests) == (11, 0, 1)
    assert first.ends_at == second.begins_at == HOUR + timedelta(minutes=60.01)
    assert (first.begins_at, first.hour_at) == (HOUR, HOUR)
    assert (first.seconds, second.seconds) == (3601, 59)


def test_what_was_counted_while_a_fleet_was_away_comes_with_its_next_sample():
    send(make_sample(59, input_tokens=10), make_sample(200, input_tokens=70))
    first, second = replica_hours(HOUR, DAY)
    assert (first.input_tokens, second.input_tokens) == (10, 60)
    assert second.hour_at == HOUR + timedelta(hours=3)
    assert (second.begins_at, second.ends_at) == (first.ends_at, HOUR + timedelta(minutes=200))


def test_hours_asked_for_one_by_one_are_those_asked_for_together():
    minutes = (20, 60, 60.2, 61, 119.9, 120.4, 120.6, 290)
    send(*(make_sample(minute, output_tokens=int(minute)) for minute in minutes))
    singly = [
        one
        for hour in range(12)
        for one in replica_hours(HOUR + timedelta(hours=hour), HOUR + timedelta(hours=hour + 1))
    ]
    assert singly == replica_hours(HOUR, DAY)
    assert sum(one.output_tokens for one in singly) == 290


def test_a_replica_costs_from_its_start_and_works_for_a_part_of_that():
    deployment = make_deployment(make_variant(make_model()), hourly_cost_nanos=3_600)
    figures = {"deployment_id": deployment.id, "ready_seconds": 500, "busy_seconds": 7}
    send(make_sample(10, **figures), make_sample(20, **figures | {"busy_seconds": 10_000}))
    [hour] = replica_hours(HOUR, DAY)
    assert (hour.seconds, hour.ready_seconds) == (1_200, 500)
    assert (hour.cost_nanos, hour.busy_cost_nanos) == (1_200, 607)  # 7 and at most all of 600
    assert hour.is_cost_known


def test_a_cost_that_nobody_knows_is_nothing_and_said_so():
    send(make_sample(10))
    [hour] = replica_hours(HOUR, DAY)
    assert (hour.cost_nanos, hour.busy_cost_nanos, hour.is_cost_known) == (0, 0, False)


def test_a_cost_told_late_is_that_of_the_samples_before():
    deployment = make_deployment(make_variant(make_model()))
    send(make_sample(30, deployment_id=deployment.id))
    deployment.hourly_cost_nanos = 100
    deployment.save()
    [hour] = replica_hours(HOUR, DAY)
    assert (hour.cost_nanos, hour.is_cost_known) == (50, True)


@pytest.mark.parametrize("step", ["hour", "day"])
def test_hours_of_a_deployment_are_those_of_its_replicas_to_the_nano(step):
    dear = make_deployment(make_variant(make_model()), hourly_cost_nanos=1_001)
    sent = [
        make_sample(minute, f"rep_{number}", deployment_id=deployment_id, busy_seconds=int(minute))
        for number, deployment_id in enumerate((dear.id, dear.id, "dep_free"))
        for minute in (7 + number, 59.9, 60.4, 61, 133, 700)
    ]
    send(*sent)
    begin = HOUR + timedelta(hours=1)
    by_replica = replica_hours(begin, begin + timedelta(days=1))
    names = ("seconds", "cost_nanos", "busy_cost_nanos")
    added: dict = {}
    for hour in by_replica:
        at = hour.hour_at if step == "hour" else hour.hour_at.replace(hour=0)
        sums = added.setdefault((hour.deployment_id, at), dict.fromkeys(names, 0))
        for name in names:
            sums[name] += getattr(hour, name)
    found = deployment_hours(begin, begin + timedelta(days=1), step)
    assert {
        (one.deployment_id, one.hour_at): {name: getattr(one, name) for name in names}
        for one in found
    } == added
    assert {one.deployment_id for one in found if one.is_cost_known} == {dear.id}
    assert hour_count(begin, begin + timedelta(days=1)) >= len(by_replica) > 0
