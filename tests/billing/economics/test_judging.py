"""Each hour is judged once, missed ones too; usage that no sample covers is an alarm."""

from datetime import timedelta

import pytest
from django.db import connection

from billing.economics import judging
from billing.economics.judging import MISSED_MAX, judge_hour, judge_missed_hours, missed_hours
from billing.economics.models import JudgedHour, Judgement
from billing.economics.reconciliation import reconcile
from billing.metering.ingest import ingest
from control.alarms.count import OPERATOR
from control.alarms.models import AlarmCount
from control.catalog.models import Engine
from tests.fixtures.engines import HOUR, make_sample, send
from tests.fixtures.organizations import make_deployment
from tests.fixtures.usage import make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
ONE_HOUR = timedelta(hours=1)


def count(kind):
    return sum(
        AlarmCount.objects.filter(kind=kind, organization_id=OPERATOR).values_list("count", flat=1)
    )


@pytest.fixture
def serve(customer, price):
    def book(minutes, replica_id="rep_1", **changes):
        at = HOUR + timedelta(minutes=minutes)
        event = make_event(customer, price, received_at=at, replica_id=replica_id, **changes)
        assert ingest(make_batch([event]), now=HOUR + 6 * ONE_HOUR).accepted

    return book


def test_hours_missed_while_the_worker_was_away_are_made_up_for_once():
    send(*(make_sample(60 * hour, output_tokens=1_000 * hour) for hour in (1, 2, 3)))
    now = HOUR + 3 * ONE_HOUR + timedelta(minutes=20)
    assert missed_hours(now) == [HOUR, HOUR + ONE_HOUR, HOUR + 2 * ONE_HOUR]
    assert judge_missed_hours(now=now) == 3
    assert judge_missed_hours(now=now) == 0
    assert judge_hour(HOUR, now=now) == 0
    assert (JudgedHour.objects.count(), Judgement.objects.count()) == (3, 3)
    assert count("engine_difference") == 3


@pytest.mark.django_db(transaction=True)
def test_judging_reads_before_it_keeps_followers_waiting(monkeypatch):
    send(make_sample(60, output_tokens=1_000))
    seen = []

    def look(*args, **kwargs):
        found = reconcile(*args, **kwargs)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id_if_assigned()")
            seen.append(cursor.fetchone())
        return found

    monkeypatch.setattr(judging, "reconcile", look)
    assert judge_hour(HOUR, now=HOUR + 2 * ONE_HOUR) == 1
    assert seen == [(None,)]


def test_no_hour_is_judged_before_its_events_had_time():
    send(make_sample(60))
    assert missed_hours(HOUR + timedelta(minutes=74)) == []
    assert missed_hours(HOUR + timedelta(minutes=75)) == [HOUR]


def test_hours_too_long_ago_are_left_alone():
    send(make_sample(1))
    hours = missed_hours(HOUR + timedelta(days=30))
    assert len(hours) == MISSED_MAX // ONE_HOUR - 1
    assert hours[-1] == HOUR + timedelta(days=30, hours=-2)


def test_without_any_sample_the_newest_hour_is_judged_all_the_same(serve):
    serve(10)
    now = HOUR + timedelta(minutes=80)
    assert missed_hours(now) == [HOUR]
    assert judge_missed_hours(now=now) == 1
    assert (count("engine_unsampled"), count("engine_difference")) == (1, 0)


def test_a_replica_that_nobody_samples_is_an_alarm_beside_one_that_agrees(serve):
    serve(10)
    serve(20, "rep_dark")
    send(make_sample(60, input_tokens=1_000, output_tokens=20, requests=1))
    assert judge_missed_hours(now=HOUR + timedelta(minutes=80)) == 1
    dark = Judgement.objects.get(replica_id="rep_dark")
    assert (dark.is_sampled, dark.is_alarming) == (False, True)
    assert (dark.unexplained_input_tokens, dark.unexplained_output_tokens) == (-1_000, -20)
    assert not Judgement.objects.get(replica_id="rep_1").is_alarming


def test_usage_after_a_replicas_last_sample_is_told_from_that_before(serve):
    serve(10)
    serve(21.5)  # within the last minutes' grace
    serve(40)
    send(make_sample(20, input_tokens=1_000, output_tokens=20, requests=1))
    first, rest = reconcile(HOUR, HOUR + ONE_HOUR, now=HOUR + 2 * ONE_HOUR)
    assert (first.is_sampled, first.events.request_count, first.is_alarming) == (True, 1, False)
    assert (rest.is_sampled, rest.events.request_count, rest.is_alarming) == (False, 1, True)
    assert rest.engine.begins_at == HOUR + timedelta(minutes=20)


def test_a_fleet_that_was_away_explains_itself_with_its_next_sample(serve):
    serve(10)
    send(make_sample(150, input_tokens=1_000, output_tokens=20, requests=1))
    [one] = reconcile(HOUR, HOUR + 3 * ONE_HOUR, now=HOUR + 5 * ONE_HOUR)
    assert one.is_sampled
    assert not one.is_alarming


def test_an_engine_elsewhere_that_has_no_counters_is_no_alarm(serve, price):
    elsewhere = {"external_urls": ["http://e"], "engine_arguments": ["cache_salt"]}
    deployment = make_deployment(price.variant, engine=Engine.EXTERNAL, **elsewhere)
    serve(10, "rep_far", deployment_id=deployment.id)
    assert reconcile(HOUR, HOUR + ONE_HOUR, now=HOUR + 2 * ONE_HOUR) == []


def test_requests_without_tokens_need_no_counter(serve):
    none = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
    serve(10, outcome="engine_failed", **none)
    assert reconcile(HOUR, HOUR + ONE_HOUR, now=HOUR + 2 * ONE_HOUR) == []


def test_what_was_judged_keeps_its_reasons(serve):
    serve(10, outcome="client_cancelled")
    send(make_sample(60, input_tokens=1_000, output_tokens=21, requests=1))
    judge_missed_hours(now=HOUR + timedelta(minutes=80))
    one = Judgement.objects.get()
    assert one.allowed("engine") == (16, 17)
    assert one.allowed("events") == (0, 0)
    assert "each within an engine step (1)" in one.reasons[1][0]
