"""Dead letters and what else needs attention: listed with the alarms, retried and dismissed by
operators alone."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from billing.credit.models import Lease
from billing.metering.ingest import ingest
from billing.metering.models import DeadLetter, UsageEvent
from billing.metering.services import book_again, dismiss
from control.accounts.models import User
from control.audit.models import AuditEvent
from control.audit.pseudonyms import NameResolver
from control.errors import Conflict, InvalidValue, NotPermitted
from control.permissions import Actor
from tests.fixtures import usage
from tests.fixtures.usage import (
    ask_for,
    give_credit,
    make_batch,
    make_event,
    make_price,
    with_lease,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
PAGE = "/admin/alarms/alarmcount/overview/"
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
