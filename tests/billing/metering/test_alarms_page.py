"""The page of alarms and the verbs behind it: for operators alone, each kind in words."""

import re
from datetime import timedelta
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from billing.credit.models import Lease
from billing.metering.alarm_words import WORDS, words_of
from billing.metering.alarms import OPERATOR, Alarm, raise_alarms
from billing.metering.ingest import ingest
from billing.metering.models import DeadLetter, Tally, UsageEvent
from billing.metering.services import book_again, dismiss
from control.accounts.models import User
from control.admin.base import row_url
from control.audit.models import AuditEvent
from control.audit.pseudonyms import NameResolver
from control.catalog import services as catalog
from control.catalog.fleet_status import FleetStatus
from control.catalog.models import ReplicaFailure
from control.errors import Conflict, InvalidValue, NotPermitted
from control.permissions import Actor
from serving.contract.replica import ReplicaRecord
from tests.fixtures import usage
from tests.fixtures.corpus import quarter
from tests.fixtures.organizations import make_deployment, make_model, make_variant
from tests.fixtures.usage import (
    ask_for,
    give_credit,
    make_batch,
    make_event,
    make_price,
    with_lease,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
ROOT = Path(__file__).parents[3]
PAGE = "/admin/metering/tally/alarms/"
LETTERS = "/admin/metering/deadletter/"
EVENTS = "/admin/metering/usageevent/"
NOW = timezone.now()


def log_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator():
    return log_in(User.objects.create_superuser("operator@penstock.test"))


@pytest.fixture
def letter():
    ingest(make_batch([b'{"event_id": "broken"}']), now=timezone.now())
    return DeadLetter.objects.get()


def shown(client, **parameters):
    answer = client.get(PAGE, parameters)
    assert answer.status_code == 200
    return answer.content.decode()


def test_members_see_nothing_and_every_operator_may_look():
    assert Client().get(PAGE).status_code == 302
    assert log_in(User.objects.create_user("member@acme.test")).get(PAGE).status_code == 302
    clerk = User.objects.create_user("clerk@penstock.test", operator_role="viewer")
    assert log_in(clerk).get(PAGE).status_code == 200


KINDS = sorted({*get_args(Alarm), *WORDS, "late_follower_rollups", "brand_new"})


@pytest.mark.parametrize("kind", quarter(KINDS))
def test_each_kind_of_alarm_has_words_and_a_link_that_opens(operator, customer, kind):
    words = words_of(kind)
    assert words.meaning.endswith(".")
    assert words.action.endswith(".")
    assert kind in WORDS or words.behind in ("consumers", "counts")
    raise_alarms({(OPERATOR, kind): 1, (customer.id, kind): 2}, now=timezone.now())
    page = operator.get(PAGE)
    [row] = page.context["rows"]
    [owner] = row.named
    tally = Tally.objects.filter(kind=kind).first()
    behind = operator.get(f"/admin/metering/tally/{tally.pk}/change/").content.decode()
    for address in (row.url, row.tallies_url, owner.url):
        assert operator.get(address).status_code == 200, address
        assert escape(address) in page.content.decode()
    assert escape(row.url) in behind


def test_every_alarm_that_is_raised_has_words():
    """`raise_alarms` is called with kinds as text: each is found in the code."""
    raised = set()
    for path in (*ROOT.glob("billing/**/*.py"), *ROOT.glob("platform/**/*.py")):
        raised |= set(
            re.findall(r'\((?:OPERATOR|owner|[\w.]*organization_id), "(\w+)"\):', path.read_text())
        )
    assert {"check_failed", "replica_failed", "payment_gap", "day_disagrees"} <= raised
    assert raised - {*WORDS} == set()


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
    assert Tally.objects.get(kind="replica_failed").count == 1
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


def test_kinds_that_carry_a_name_or_nobody_described_are_shown_too(operator):
    raise_alarms({(OPERATOR, "late_follower_keys"): 2, (OPERATOR, "brand_new"): 1}, now=NOW)
    page = shown(operator)
    assert "Consumer lag: keys" in page
    assert words_of("brand_new").name in page


def test_counts_are_by_kind_and_name_their_organizations(operator, customer, outsider):
    for days_ago, count in ((0, 5), (3, 6), (20, 1_000)):
        at = timezone.now() - timedelta(days=days_ago)
        raise_alarms(
            {(customer.id, "unknown_price"): count, (outsider.id, "other_band"): 1}, now=at
        )
    assert "Acme</a> (11)" in shown(operator)
    assert "Acme</a> (5)" in shown(operator, days="1")
    assert "Acme</a> (1,011)" in shown(operator, days="30")
    assert "Acme</a> (11)" in shown(operator, days="senseless")


def test_what_waits_for_a_person_is_listed(operator, customer, letter):
    give_credit(customer, 1_000_000)
    then = timezone.now() - timedelta(hours=3)
    granted = ask_for(customer.balance, 131_800, now=then)
    event = make_event(customer, make_price(), received_at=then)
    ingest(make_batch([with_lease(event, granted.lease_id)]), now=timezone.now())
    over = Lease.objects.get()
    page = shown(operator)
    assert "1 dead letter</a>" in page
    assert f"/admin/credit/lease/{over.pk}/change/" in page
    assert "took $0.0000002 more" in page
    assert "has 1 lease open since" in page


def test_nothing_waits_where_nothing_happened(operator):
    page = shown(operator)
    assert "Nothing: no open dead letter" in page
    assert "No alarms in the last 7 days" in page


def test_a_letter_is_dismissed_once_with_a_reason_on_record(letter):
    actor = Actor.for_system("tests")
    with pytest.raises(InvalidValue):
        dismiss(actor=actor, letter_id=letter.pk, reason=" ", now=NOW)
    dismiss(actor=actor, letter_id=letter.pk, reason="a test's bytes", now=NOW)
    letter.refresh_from_db()
    assert letter.dismissed_at == NOW
    entry = AuditEvent.objects.get(action="usage.dismiss")
    assert (entry.target_id, entry.details["reason"]) == (letter.pk, "a test's bytes")
    with pytest.raises(Conflict):
        dismiss(actor=actor, letter_id=letter.pk, reason="again", now=NOW)


def test_only_operators_dismiss(letter):
    stranger = Actor.for_user(User.objects.create_user("stranger@acme.test"))
    with pytest.raises(NotPermitted):
        dismiss(actor=stranger, letter_id=letter.pk, reason="mine", now=NOW)


def test_what_was_dismissed_can_be_booked_and_what_was_booked_is_settled(customer):
    price = make_price()
    ingest(make_batch([make_event(customer, price, rating=99)]), now=usage.NOW)
    letter = DeadLetter.objects.get()
    dismiss(
        actor=Actor.for_system("tests"), letter_id=letter.pk, reason="by mistake", now=usage.NOW
    )
    payload = bytes(letter.payload).replace(b'"rating":99', b'"rating":2')
    DeadLetter.objects.update(payload=payload)
    letter.refresh_from_db()
    book_again(actor=Actor.for_system("tests"), letter=letter, now=usage.NOW)
    assert UsageEvent.objects.count() == 1
    for verb in (
        lambda: book_again(actor=Actor.for_system("tests"), letter=letter, now=usage.NOW),
        lambda: dismiss(
            actor=Actor.for_system("tests"), letter_id=letter.pk, reason="late", now=usage.NOW
        ),
    ):
        with pytest.raises(Conflict):
            verb()


def test_the_admin_asks_for_the_reason_and_does_it(operator, letter):
    page = f"{LETTERS}{letter.pk}/dismiss/"
    assert b"nobody is charged" in operator.get(page).content
    assert operator.post(page, {"reason": ""}).status_code == 200
    assert operator.post(page, {"reason": "never was an event"}).status_code == 302
    letter.refresh_from_db()
    assert letter.dismissed_at is not None
    deed = AuditEvent.objects.get(action="usage.dismiss")
    assert NameResolver([deed]).actor(deed) == "operator@penstock.test"
    assert letter.pk not in operator.get(LETTERS, {"state": "open"}).content.decode()
    assert letter.pk in operator.get(LETTERS, {"state": "dismissed"}).content.decode()


def test_a_letter_that_still_cannot_be_booked_says_why(operator, letter):
    page = f"{LETTERS}{letter.pk}/book_one/"
    answer = operator.post(page, {"csrfmiddlewaretoken": "any"})
    letter.refresh_from_db()
    assert answer.status_code == 200
    assert letter.booked_at is None
    assert not UsageEvent.objects.exists()
    assert b"missing required field" in answer.content


@pytest.mark.parametrize(("hours", "is_booked"), [(-1, True), (1, False)])
def test_a_letter_is_booked_again_for_ninety_days(operator, customer, hours, is_booked):
    received_at = timezone.now() - timedelta(days=90, hours=hours)
    price = make_price(at=received_at)
    ingest(make_batch([make_event(customer, price, received_at=received_at, rating=99)]), now=NOW)
    letter = DeadLetter.objects.get()
    payload = bytes(letter.payload).replace(b'"rating":99', b'"rating":2')
    DeadLetter.objects.update(payload=payload)
    answer = operator.post(f"{LETTERS}{letter.pk}/book_one/", {"csrfmiddlewaretoken": "any"})
    assert UsageEvent.objects.count() == is_booked
    assert answer.status_code == (302 if is_booked else 200)
    assert is_booked or "can no longer be recorded" in answer.content.decode()


def test_who_may_look_alone_may_neither_book_nor_dismiss(letter):
    clerk = User.objects.create_user("clerk@penstock.test", operator_role="viewer")
    client = log_in(clerk)
    assert client.get(f"{LETTERS}{letter.pk}/change/").status_code == 200
    for verb in ("dismiss", "book_one"):
        answer = client.post(f"{LETTERS}{letter.pk}/{verb}/", {"reason": "mine"})
        assert answer.status_code == 403
    client.post(LETTERS, {"action": "book", "_selected_action": letter.pk})
    letter.refresh_from_db()
    assert (letter.dismissed_at, letter.booked_at) == (None, None)


def test_the_list_of_events_shows_a_day_unless_more_is_asked_for(operator, customer, price):
    now = timezone.now()
    young, old = (
        make_event(customer, price, received_at=now - timedelta(days=days)) for days in (0, 3)
    )
    ingest(make_batch([young, old]), now=now)
    for parameters, expected in [
        ({}, {young.event_id}),
        ({"within": "7"}, {young.event_id, old.event_id}),
        ({"q": old.event_id}, {old.event_id}),
        ({"within": "all", "outcome": "timed_out"}, set()),
        ({"within": "all", "fault": "unknown_price"}, set()),
    ]:
        page = operator.get(EVENTS, parameters).content.decode()
        links = {event.event_id for event in (young, old) if f"{event.event_id}/change" in page}
        assert links == expected, parameters
