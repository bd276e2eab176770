"""The page of alarms: for operators alone, each kind with its meaning and its evidence."""

import re
from datetime import timedelta
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from billing.metering.judging import UsageAlarm
from control.accounts.models import User
from control.admin.base import row_url
from control.alarms.catalogue import DESCRIPTIONS, describe
from control.alarms.count import OPERATOR, raise_alarm_on_commit, raise_alarms
from control.alarms.models import AlarmCount
from control.catalog import services as catalog
from control.catalog.fleet_status import FleetStatus
from control.catalog.models import ReplicaFailure
from serving.contract.replica import ReplicaRecord
from tests.fixtures.corpus import quarter
from tests.fixtures.organizations import make_deployment, make_model, make_variant
from tests.fixtures.usage import make_customer

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
ROOT = Path(__file__).parents[3]
PAGE = "/admin/alarms/alarmcount/overview/"
NOW = timezone.now()


def log_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator():
    return log_in(User.objects.create_superuser("operator@penstock.test"))


def shown(client, **parameters):
    answer = client.get(PAGE, parameters)
    assert answer.status_code == 200
    return answer.content.decode()


def test_members_see_nothing_and_every_operator_may_look():
    assert Client().get(PAGE).status_code == 302
    assert log_in(User.objects.create_user("member@acme.test")).get(PAGE).status_code == 302
    clerk = User.objects.create_user("clerk@penstock.test", operator_role="viewer")
    assert log_in(clerk).get(PAGE).status_code == 200


RAISED = r'\((?:OPERATOR|owner|[\w.]*organization_id), "(\w+)"(?:\):|, now=)'
KINDS = sorted({*get_args(UsageAlarm), *DESCRIPTIONS, "late_follower_rollups", "brand_new"})


@pytest.mark.parametrize("kind", quarter(KINDS))
def test_each_kind_of_alarm_has_words_and_a_link_that_opens(operator, kind):
    customer, described = make_customer("Acme"), describe(kind)
    assert described.meaning.endswith(".")
    assert described.action.endswith(".")
    assert kind in DESCRIPTIONS or described.evidence in ("consumers", "counts")
    raise_alarms({(OPERATOR, kind): 1, (customer.id, kind): 2}, now=timezone.now())
    page = operator.get(PAGE)
    [row] = page.context["rows"]
    [owner] = row.named
    count = AlarmCount.objects.filter(kind=kind).first()
    behind = operator.get(f"/admin/alarms/alarmcount/{count.pk}/change/").content.decode()
    for address in (row.url, row.counts_url, owner.url):
        assert operator.get(address).status_code == 200, address
        assert escape(address) in page.content.decode()
    assert escape(row.url) in behind


def test_every_alarm_that_is_raised_has_words():
    """Alarms are raised with kinds as text: each is found in the code."""
    raised = set()
    for path in (*ROOT.glob("billing/**/*.py"), *ROOT.glob("platform/**/*.py")):
        raised |= set(re.findall(RAISED, path.read_text()))
    assert {"check_failed", "replica_failed", "payment_gap", "day_disagrees"} <= raised
    assert raised - {*DESCRIPTIONS} == set()


def test_a_failed_replica_is_an_alarm_with_its_reason(
    operator, django_capture_on_commit_callbacks, monkeypatch
):
    deployment = make_deployment(make_variant(make_model()))
    known = ("rep_1", deployment.id, "http://h")
    failed = ReplicaRecord(*known, "failed", 8, NOW, "vllm", reason="CUDA out of memory")
    stranger = msgspec.structs.replace(failed, replica_id="rep_2", deployment_id="dep_gone")
    living = msgspec.structs.replace(failed, replica_id="rep_3", state="loading", reason="")
    fleet = FleetStatus((failed, stranger, living))
    monkeypatch.setattr(catalog, "fleet_status", lambda: fleet)
    with django_capture_on_commit_callbacks(execute=True):
        assert [catalog.note_failures(now=NOW) for _ in range(2)] == [1, 0]
    assert AlarmCount.objects.get(kind="replica_failed").count == 1
    failure = row_url("admin:catalog_replicafailure_change", "rep_1")
    of_deployment = row_url("admin:catalog_deployment_change", deployment.id)
    page = shown(operator)
    assert failure in page
    assert of_deployment in page
    for address in (PAGE, failure, of_deployment):
        assert "CUDA out of memory" in operator.get(address).content.decode()
    assert of_deployment in operator.get(failure).content.decode()
    catalog.note_failures(now=NOW + catalog.FAILURES_KEPT + timedelta(days=1))
    assert ReplicaFailure.objects.count() == 1, "it is reported still, so it is kept anew"
    monkeypatch.setattr(catalog, "fleet_status", lambda: FleetStatus(is_down=True))
    catalog.note_failures(now=NOW + 3 * catalog.FAILURES_KEPT)
    assert not ReplicaFailure.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_alarm_that_cannot_be_counted_fails_nothing():
    with transaction.atomic():
        raise_alarm_on_commit(OPERATOR, "longer_than_the_column_of_kinds_has_room_for", now=NOW)
        raise_alarm_on_commit(OPERATOR, "brand_new", now=NOW)
    assert [each.kind for each in AlarmCount.objects.all()] == ["brand_new"]


def test_kinds_that_carry_a_name_or_nobody_described_are_shown_too(operator):
    raise_alarms({(OPERATOR, "late_follower_keys"): 2, (OPERATOR, "brand_new"): 1}, now=NOW)
    page = shown(operator)
    assert "Consumer lag: keys" in page
    assert describe("brand_new").name in page


def test_counts_are_by_kind_and_name_their_organizations(operator):
    customer, outsider = make_customer("Acme"), make_customer("Outsider")
    for days_ago, count in ((0, 5), (3, 6), (20, 1_000)):
        at = timezone.now() - timedelta(days=days_ago)
        raise_alarms(
            {(customer.id, "unknown_price"): count, (outsider.id, "other_band"): 1}, now=at
        )
    assert "Acme</a> (11)" in shown(operator)
    assert "Acme</a> (5)" in shown(operator, days="1")
    assert "Acme</a> (1,011)" in shown(operator, days="30")
    assert "Acme</a> (11)" in shown(operator, days="senseless")
