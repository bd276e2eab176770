"""Engines against the books, in the database: each event in its replica's window, once."""

from datetime import timedelta

import msgspec
import pytest

from billing.economics.judging import judge_missed_hours
from billing.economics.reconciliation import PROBE_TOKENS, reconcile
from billing.economics.tasks import reconcile as task
from billing.metering.ingest import ingest
from control.alarms.count import OPERATOR
from control.alarms.models import AlarmCount
from tests.fixtures.engines import HOUR, make_sample, send
from tests.fixtures.usage import make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
LATER = HOUR + timedelta(hours=2)


@pytest.fixture
def serve(customer, price):
    """Book an event of so many minutes after HOUR; return it."""

    def book(minutes, **changes):
        received_at = HOUR + timedelta(minutes=minutes)
        event = make_event(customer, price, received_at=received_at, **changes)
        assert ingest(make_batch([event]), now=LATER).accepted
        return event

    return book


def judge(hours=1):
    return reconcile(HOUR, HOUR + timedelta(hours=hours), now=LATER)


def differences(one):
    return one.input_difference_tokens, one.output_difference_tokens


def test_every_outcome_counts_and_nobody_elses_does(serve):
    serve(1)
    serve(2, outcome="client_cancelled")
    serve(3, outcome="engine_failed")
    serve(4, replica_id="rep_2")
    send(make_sample(60, input_tokens=3_000, output_tokens=60, requests=3))
    one, others = judge()
    assert differences(one) == (0, 0)
    assert (one.events.request_count, one.events.cut_count) == (3, 2)
    assert (others.engine.replica_id, others.is_sampled) == ("rep_2", False)
    assert not one.is_alarming


def test_tokens_that_no_event_names_are_an_alarm(serve):
    serve(1)
    send(make_sample(60.001, input_tokens=1_000, output_tokens=500, requests=1))
    [one] = judge()
    assert (one.unexplained_input_tokens, one.unexplained_output_tokens) == (0, 480 - PROBE_TOKENS)
    assert judge_missed_hours(now=HOUR + timedelta(minutes=75)) == 1
    assert AlarmCount.objects.get(organization_id=OPERATOR, kind="engine_difference").count == 1


def test_tokens_that_no_engine_made_are_an_alarm(serve):
    serve(1)
    send(make_sample(60, input_tokens=1_000, output_tokens=19, requests=1))
    [one] = judge()
    assert one.unexplained_output_tokens == -1
    assert one.is_alarming


def test_an_hour_is_judged_when_its_events_have_had_time(serve):
    send(make_sample(60, output_tokens=500))
    [one] = reconcile(HOUR, HOUR + timedelta(hours=1), now=HOUR + timedelta(minutes=70))
    assert one.unexplained_output_tokens > 0
    assert not one.is_alarming
    assert judge_missed_hours(now=HOUR + timedelta(minutes=70)) == 0


def test_a_request_across_the_hour_explains_both_hours(serve):
    serve(59.5, total_seconds=120)
    send(make_sample(60), make_sample(120, input_tokens=1_000, output_tokens=20, requests=1))
    first, second = judge(hours=2)
    assert (differences(first), differences(second)) == ((-1_000, -20), (1_000, 20))
    assert not first.is_alarming
    assert not second.is_alarming
    assert "ended in the next one" in first.reasons[-1].words
    assert "from the hour before" in second.reasons[-1].words


def test_a_lost_request_may_have_been_any_of_its_deployments_replicas(serve):
    serve(1)
    none = {"replica_id": None, "input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
    serve(2, outcome="gateway_lost", **none)
    send(make_sample(60, input_tokens=2_000, output_tokens=40, requests=2))
    [one] = judge()
    assert one.events.unknown_count == 1
    assert not one.is_alarming


def test_a_try_that_another_outran_explains_what_its_engine_counted(serve):
    serve(1)
    none = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
    outrun = serve(1, outcome="hedged", replica_id="rep_2", **none)
    assert not outrun.charges
    send(make_sample(60, input_tokens=1_000, output_tokens=20, requests=1))
    send(make_sample(60, "rep_2", input_tokens=1_000, output_tokens=1, requests=1))
    first, second = judge()
    assert differences(first) == (0, 0)
    assert second.events.unknown_count == 1
    assert not second.is_alarming


def test_a_lost_request_that_is_found_again_counts_as_it_was(serve):
    none = {"replica_id": None, "input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
    lost = serve(2, outcome="gateway_lost", **none)
    found = {"replica_id": "rep_1", "outcome": "completed", "output_tokens": 7, "input_tokens": 9}
    real = msgspec.structs.replace(lost, **found)
    ingest(make_batch([real]), now=LATER)
    send(make_sample(60, input_tokens=9, output_tokens=7, requests=1))
    [one] = judge()
    assert differences(one) == (0, 0)
    assert one.events.unknown_count == 0


def test_a_fleet_that_was_away_is_judged_over_the_longer_window(serve):
    serve(10)
    serve(70)
    send(make_sample(1), make_sample(100, input_tokens=2_000, output_tokens=40, requests=2))
    first, second = judge(hours=2)
    assert differences(first) == differences(second) == (0, 0)
    assert second.events.request_count == 2


def test_the_task_may_run_with_nothing_to_judge():
    task()
    assert not AlarmCount.objects.exists()
