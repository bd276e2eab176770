"""Two workers at once, a worker killed between any two statements, a payment in mid-look: each step
once, and nobody suspended who has paid."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from billing.collection import following
from billing.collection.models import Case, State, Step
from billing.collection.services.looking import look, look_at
from control.organizations.selectors import locked_organization
from control.outbox.models import OutboxMessage
from control.outbox.services import deliver_due
from tests.fixtures.collecting import (
    Debt,
    day,
    make_debt,
    names,
    pass_days,
    pay,
    published,
    state_of,
)
from tests.fixtures.invoicing import sound
from tests.fixtures.organizations import make_organization

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
STATEMENTS = 60


@pytest.fixture
def debt(transactional_db: None) -> Debt:
    return make_debt()


class Killed(BaseException):
    """The process is gone: nothing may catch it and go on."""


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    seen = 0

    def count(execute: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen > number:
            raise Killed
        return execute(*arguments)

    with connection.execute_wrapper(count):
        yield


def side_by_side(*deeds: Callable[[], object]) -> list[object]:
    ready = Barrier(len(deeds))

    def run(deed: Callable[[], object]) -> object:
        try:
            ready.wait(60)
            return deed()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(deeds)) as pool:
        return [each.result(60) for each in [pool.submit(run, deed) for deed in deeds]]


def test_two_beats_take_each_step_once(org, owing):
    for number in range(15):
        side_by_side(*[lambda number=number: look(now=day(number))] * 3)
        look(now=day(number))
    assert [name for name, _ in names(org)] == ["retry"] * 4 + ["limit", "suspend"]
    assert sound()


def test_a_beat_killed_anywhere_leaves_nothing_behind(org, owing):
    pass_days(13)
    before = Step.objects.count(), OutboxMessage.objects.count()
    survived = False
    for number in range(STATEMENTS):
        try:
            with killed_at(number):
                look_at(org.id, now=day(14))
        except Killed:
            assert (Step.objects.count(), OutboxMessage.objects.count()) == before
            assert published(org) == "active"
        else:
            survived = True
            break
    assert survived
    assert (state_of(org), published(org)) == (State.SUSPENDED, "suspended")
    assert names(org).count(("suspend", "suspended")) == 1


def test_a_payment_beside_the_suspending_beat_ends_served(org, owing):
    pass_days(13)
    side_by_side(lambda: look(now=day(14)), lambda: pay(org, at=day(14)))
    deliver_due(now=day(14))
    look(now=day(15))
    assert (state_of(org), published(org)) == (State.CURRENT, "active")


def test_a_payment_does_not_wait_for_who_holds_the_organization(org, owing):
    """Who holds its row may wait for the balance that the payment holds."""
    pass_days(14)
    held, done = Event(), Event()

    def hold() -> None:
        with transaction.atomic():
            locked_organization(org.id)
            held.set()
            done.wait(60)
        connections.close_all()

    thread = Thread(target=hold)
    thread.start()
    assert held.wait(60)
    try:
        pay(org, at=day(15))
        assert published(org) == "suspended"
    finally:
        done.set()
        thread.join()
    assert OutboxMessage.objects.filter(kind=following.LOOK, organization_id=org.id).exists()
    deliver_due(now=day(15))
    assert (state_of(org), published(org)) == (State.CURRENT, "active")


def test_a_beat_with_nothing_due_asks_one_question_however_many_there_are(org, owing):
    others = [make_organization(f"Other{number}") for number in range(5)]
    Case.objects.bulk_create(Case(organization=other.organization) for other in others)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert look(now=day(-1)) == 0
    assert len(asked) == 1


def test_ten_thousand_organizations_cost_one_index_scan(org, superuser_connection):
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO organizations_organization (id, name, status, billing_mode, weight,
                cache_salt_id, created_at, idempotency_enabled, suspended_reason)
            SELECT 'org_many' || n, 'Many', 'active', 'prepaid', 1, 'salt', now(), false, ''
            FROM generate_series(1, 10000) AS n
            """
        )
        cursor.execute(
            """
            INSERT INTO collection_case (organization_id, state, round, invoice_id, due_cents,
                next_kind, pause_reason, waits_for, next_at)
            SELECT 'org_many' || n, 'current', 0, '', 0, '', '', '', now() + n * interval '1 hour'
                    + interval '90 days'
            FROM generate_series(1, 10000) AS n
            """
        )
    superuser_connection.execute("ANALYZE collection_case")
    with connection.cursor() as cursor:
        cursor.execute(
            "EXPLAIN SELECT organization_id FROM collection_case WHERE next_at <= now()"
            " ORDER BY next_at, organization_id LIMIT 500"
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "collection_case_by_next" in plan, plan
