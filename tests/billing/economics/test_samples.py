"""Samples of engines are kept once, with what the replica cost then; the old ones by the hour."""

from datetime import timedelta
from random import Random

import msgspec
import pytest
from django.test import Client

from billing.economics.models import EngineLife, EngineSample
from billing.economics.replica_hours import replica_hours
from billing.economics.services import THINNED_AFTER, thin_samples
from billing.economics.tasks import thin_samples as thin_task
from control.catalog import services as catalog
from serving.contract.engine_counters import CountersReply, CountersRequest
from tests.fixtures.credentials import bearer
from tests.fixtures.engines import HOUR, make_sample, send
from tests.fixtures.organizations import OPERATOR, make_deployment, make_model, make_variant

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
PATH = "/internal/v1/engine-counters"
FLEET = bearer("fleet")


def post(body, headers=FLEET):
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Client(headers=headers).post(PATH, data, content_type="application/json")


def test_a_fleet_reports_and_reports_again():
    request = CountersRequest("fl_1", (make_sample(1), make_sample(2), make_sample(1, "rep_2")))
    for expected in (CountersReply(3, 0), CountersReply(0, 3)):
        answer = post(request)
        assert msgspec.json.decode(answer.content, type=CountersReply) == expected
    assert EngineLife.objects.count() == 2
    assert EngineSample.objects.count() == 3


def test_one_request_may_hold_a_sample_twice():
    assert send(make_sample(1), make_sample(1)) == CountersReply(1, 1)


def test_figures_beyond_32_bits_are_kept_as_they_are():
    send(make_sample(1, input_tokens=2**63 - 1, output_tokens=3, busy_seconds=2**40))
    [row] = EngineSample.objects.all()
    assert (row.input_tokens, row.output_tokens, row.busy_seconds) == (2**63 - 1, 3, 2**40)


def test_a_life_ends_once():
    send(make_sample(1))
    assert EngineLife.objects.get().ended_at is None
    send(make_sample(2, is_last=True))
    send(make_sample(3, is_last=True))
    assert EngineLife.objects.get().ended_at == HOUR + timedelta(minutes=2)


def test_another_cost_changes_nothing_of_the_past():
    deployment = make_deployment(make_variant(make_model()), hourly_cost_nanos=5)
    send(make_sample(1, deployment_id=deployment.id))
    changes = {"hourly_cost_nanos": 7}
    catalog.update_deployment(actor=OPERATOR, deployment=deployment, changes=changes)
    send(make_sample(2, deployment_id=deployment.id))
    costs = EngineSample.objects.order_by("at").values_list("hourly_cost_nanos", flat=True)
    assert list(costs) == [5, 7]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_an_outsider_reports_nothing(headers):
    assert post(CountersRequest("fl_1", (make_sample(1),)), headers).status_code == 401
    assert not EngineLife.objects.exists()


@pytest.mark.parametrize("body", [b"", b"[]", b'{"fleet_id": "fl", "samples": [{}]}'])
def test_a_body_that_is_no_record_is_refused_by_name(body):
    answer = post(body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("CountersRequest")


def test_only_post_is_served():
    assert Client(headers=FLEET).get(PATH).status_code == 405


@pytest.mark.parametrize("seed", range(5))
def test_thinning_old_samples_loses_no_token_and_no_second(seed):
    dice, tokens, samples = Random(seed), 0, []
    for minute in sorted(dice.sample(range(600), 200)):
        tokens += dice.randrange(100)
        figures = {"input_tokens": tokens, "busy_seconds": tokens // 9, "requests": tokens // 5}
        samples.append(make_sample(minute + dice.random(), **figures))
    send(*samples)
    before = totals()
    assert thin_samples(now=HOUR + THINNED_AFTER) == 0
    gone = thin_samples(now=HOUR + THINNED_AFTER + timedelta(hours=11))
    assert gone > 150
    assert EngineSample.objects.count() == 200 - gone <= 11
    assert totals() == before
    thin_task()
    assert totals() == before


def totals():
    hours = replica_hours(HOUR, HOUR + timedelta(hours=11))
    return [
        sum(getattr(hour, name) for hour in hours)
        for name in ("input_tokens", "requests", "busy_seconds")
    ] + [min(hour.begins_at for hour in hours), max(hour.ends_at for hour in hours)]
