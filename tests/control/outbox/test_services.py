"""A message is one row, decided with what causes it, and tried until it is delivered."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from control.audit.models import AuditEvent
from control.errors import Conflict, NotPermitted
from control.outbox.claims import LEASE, claim
from control.outbox.delivery import (
    Delivery,
    PermanentFailure,
    RetryAfter,
    RetryPolicy,
    run_attempt,
    scrubbed,
)
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due, enqueue, queue_stats, retry, trim
from control.permissions import Actor
from tests.fixtures.outbox import NOW, delivering, failing, put

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


@pytest.fixture
def delivered() -> Iterator[list[Delivery]]:
    """What the kind `note` was delivered."""
    found: list[Delivery] = []
    with delivering({"note": found.append}):
        yield found


def test_a_message_is_delivered_once(delivered: list[Delivery]) -> None:
    message = put(payload={"id": "inv_1"}, organization_id="org_1")
    assert deliver_due(now=NOW) == 1
    assert deliver_due(now=NOW + DAY) == 0
    assert delivered == [
        Delivery("note", message.key, {"id": "inv_1"}, "org_1", attempt=1, now=NOW)
    ]
    message.refresh_from_db()
    assert (message.delivered_at, message.claimed_until) == (NOW, None)


def test_a_repeat_is_nothing_even_after_the_delivery(delivered: list[Delivery]) -> None:
    put(key="same")
    put(key="same", payload={"other": True})
    deliver_due(now=NOW)
    put(key="same")
    deliver_due(now=NOW + DAY)
    assert len(delivered) == 1


def test_what_is_rolled_back_was_never_decided(delivered: list[Delivery]) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        put()
        raise ZeroDivisionError
    assert deliver_due(now=NOW) == 0


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_nothing_is_enqueued() -> None:
    with pytest.raises(ValueError, match="in the transaction"):
        enqueue(kind="note", key="1", payload={}, organization_id=None, now=NOW)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kind": ""}, "kind is ''; wanted 1 to 64 characters"),
        ({"key": "k" * 201}, "key is 'k+'; wanted 1 to 200 characters"),
        ({"lane": "l" * 201}, "lane is 'l+'; wanted 1 to 200 characters"),
        ({"payload": {"text": "x" * 64_000}}, "payload has 64012 characters of JSON; wanted at"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, object], words: str) -> None:
    fields = {"kind": "note", "key": "1", "payload": {}, **wrong}
    with pytest.raises(ValueError, match=words):
        enqueue(organization_id=None, now=NOW, **fields)  # type: ignore[arg-type]


def test_nothing_is_delivered_before_it_is_due(delivered: list[Delivery]) -> None:
    put(due_at=NOW + DAY)
    assert deliver_due(now=NOW + DAY - SECOND) == 0
    assert deliver_due(now=NOW + DAY) == 1


def test_a_failure_waits_longer_each_time() -> None:
    message = put()
    policy = RetryPolicy(waits=(5 * SECOND, 60 * SECOND), give_up_after=DAY)
    now = NOW
    with delivering({"note": failing(OSError())}, {"note": policy}):
        for least, most in [(5, 6), (60, 72), (60, 72)]:
            deliver_due(now=now)
            message.refresh_from_db()
            assert least <= (message.due_at - now).total_seconds() <= most
            now = message.due_at
    assert message.attempts == 3


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(waits=(SECOND,), attempts_max=3),
        RetryPolicy(waits=(SECOND,), give_up_after=3 * SECOND),
    ],
)
def test_what_fails_for_too_long_or_too_often_is_given_up(policy: RetryPolicy) -> None:
    message = put(organization_id="org_1")
    with delivering({"note": failing(OSError())}, {"note": policy}):
        for second in range(20):
            deliver_due(now=NOW + second * SECOND)
    message.refresh_from_db()
    assert message.given_up_at
    assert message.attempts <= 3
    entry = AuditEvent.objects.get(action="outbox_message.abandoned")
    assert (entry.organization_id, entry.target_id) == ("org_1", str(message.id))


def test_what_cannot_succeed_is_given_up_at_once() -> None:
    message = put()
    with delivering({"note": failing(PermanentFailure("the address does not exist"))}):
        deliver_due(now=NOW)
    message.refresh_from_db()
    assert (message.given_up_at, message.last_error) == (NOW, "the address does not exist")


def test_a_handler_says_when_to_come_again() -> None:
    message = put()
    with delivering(
        {"note": failing(RetryAfter(timedelta(hours=2)))}, {"note": RetryPolicy(attempts_max=1)}
    ):
        deliver_due(now=NOW)
    message.refresh_from_db()
    assert message.due_at == NOW + timedelta(hours=2)


def test_a_kind_that_nobody_delivers_waits_for_who_does(delivered: list[Delivery]) -> None:
    message = put(kind="new")
    deliver_due(now=NOW)
    message.refresh_from_db()
    assert message.last_error == "no app delivers this kind"
    assert message.is_open


def test_what_a_worker_left_behind_by_dying_is_delivered_after_its_lease(
    delivered: list[Delivery],
) -> None:
    put()
    assert len(claim(now=NOW, page=10)) == 1  # and here the worker is killed
    assert deliver_due(now=NOW + LEASE - SECOND) == 0
    assert deliver_due(now=NOW + LEASE) == 1
    assert delivered[0].attempt == 2


def test_a_worker_that_dies_after_the_delivery_delivers_again_under_the_same_key(
    delivered: list[Delivery],
) -> None:
    put(key="one")
    [message] = claim(now=NOW, page=10)
    delivered.append(
        Delivery(message.kind, message.key, {}, None, 1, NOW)
    )  # killed before `succeed`
    deliver_due(now=NOW + LEASE)
    assert [each.key for each in delivered] == ["one", "one"]


def test_an_attempt_that_was_overtaken_undoes_nothing(delivered: list[Delivery]) -> None:
    put()
    [late] = claim(now=NOW, page=10)
    deliver_due(now=NOW + LEASE)
    with delivering({"note": failing(PermanentFailure("too late"))}):
        run_attempt(late, now=NOW + LEASE + SECOND)
    assert OutboxMessage.objects.get().delivered_at == NOW + LEASE


def test_an_error_is_kept_without_what_others_wrote() -> None:
    message = put()
    secret = "https://console.example/accounts/password/reset/key/abc"
    with delivering({"note": failing(OSError(secret))}):
        deliver_due(now=NOW)
    message.refresh_from_db()
    assert message.last_error.startswith("OSError at outbox.py:")
    assert scrubbed(PermanentFailure("two\nlines\x1b[31m")) == "two lines [31m"
    assert len(scrubbed(PermanentFailure("x" * 1000))) == 200


def test_an_operator_retries_what_was_given_up(delivered: list[Delivery]) -> None:
    message = put()
    with delivering({"note": failing(PermanentFailure("no"))}):
        deliver_due(now=NOW)
    later = NOW + 10 * DAY
    retry(actor=Actor.for_system("tests"), message=message, now=later)
    assert deliver_due(now=later) == 1
    assert len(delivered) == 1
    with pytest.raises(Conflict):
        retry(actor=Actor.for_system("tests"), message=message, now=later)


def test_nobody_else_retries_and_not_what_is_at_work() -> None:
    message = put()
    claim(now=NOW, page=1)
    with pytest.raises(NotPermitted):
        retry(actor=Actor(kind="user", id="u", name="u"), message=message, now=NOW)
    with pytest.raises(Conflict):
        retry(actor=Actor.for_system("tests"), message=message, now=NOW)


def test_old_messages_are_trimmed(delivered: list[Delivery]) -> None:
    put(key="delivered")
    deliver_due(now=NOW)
    with delivering({"note": failing(PermanentFailure("no"))}):
        put(key="given up")
        deliver_due(now=NOW)
    put(key="open")
    assert trim(now=NOW + 30 * DAY) == 0
    assert trim(now=NOW + 31 * DAY) == 1
    assert trim(now=NOW + 91 * DAY) == 1
    assert OutboxMessage.objects.get().key == "open"


def test_what_was_delivered_does_not_change(delivered: list[Delivery]) -> None:
    put()
    deliver_due(now=NOW)
    with pytest.raises(ProgrammingError, match="Cannot update"), transaction.atomic():
        OutboxMessage.objects.update(payload={"other": True})


def test_a_message_ends_once() -> None:
    put()
    with pytest.raises(IntegrityError), transaction.atomic():
        OutboxMessage.objects.update(delivered_at=NOW, given_up_at=NOW)


def test_the_standing_of_a_kind(delivered: list[Delivery]) -> None:
    put(kind="note")
    put(kind="mail", due_at=NOW + DAY)
    with delivering({"note": failing(OSError())}):
        deliver_due(now=NOW)
    mail, note = queue_stats(NOW + timedelta(hours=1))
    assert (mail.kind, mail.waiting_count, mail.late_count) == ("mail", 1, 0)
    assert (note.waiting_count, note.failing_count, note.late_count) == (1, 1, 1)


def test_one_transaction_wakes_the_worker_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction.atomic():
        before = len(connection.run_on_commit)
        put(), put(), put()
        assert len(connection.run_on_commit) == before + 1


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_away_costs_nothing_but_time() -> None:
    began = time.monotonic()
    for _ in range(5):
        put()
    assert OutboxMessage.objects.count() == 5
    assert time.monotonic() - began < 10


MANY = """
INSERT INTO outbox_message (kind, key, payload, lane, created_at, started_at, due_at, attempts,
    delivered_at, last_error)
SELECT 'mail', 'm' || n, '{}', '', now(), now(), now(), 1, now(), ''
FROM generate_series(1, 5000) AS n
"""


def test_how_kinds_stand_is_not_read_from_what_was_delivered(db):
    with connection.cursor() as cursor:
        cursor.execute(MANY)
        with CaptureQueriesContext(connection) as seen:
            assert queue_stats(timezone.now()) == []
        # What the planner knows of the table is what other tests left in it.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN " + seen.captured_queries[0]["sql"])
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "message_undelivered" in plan
    assert "Seq Scan" not in plan
