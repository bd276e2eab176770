"""What a lost gateway holds is given back at once, by those who may; a living one keeps it."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from billing.credit.models import Budget, Lease
from billing.credit.services import lost_gateways
from billing.credit.services.budgets import BusyError
from billing.credit.services.leases import grant_leases
from billing.credit.services.lost_gateways import Held, held_by, release_gateway
from control.accounts.models import User
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.database_identity import database_id
from control.permissions import Actor
from serving.contract.ids import new_id
from serving.contract.lease import LeaseAsk
from tests.fixtures.usage import GATEWAY, NOW, ask_for, give_credit, make_customer

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OPERATOR = Actor.for_system("tests")
ALARMS = "/admin/alarms/alarmcount/overview/"
PAGE = f"/admin/credit/lease/release-gateway/?gateway={GATEWAY}"
LATER = NOW + timedelta(hours=2)


def release(gateway_id=GATEWAY, *, now=LATER, reason="disk lost"):
    return release_gateway(actor=OPERATOR, gateway_id=gateway_id, reason=reason, now=now)


def log_in(user):
    client = Client()
    client.force_login(user)
    return client


def lose(customer, *holds, hours=3):
    """Grant leases that ended hours ago."""
    then = timezone.now() - timedelta(hours=hours)
    for need in holds:
        ask_for(customer.balance, need, now=then)


@pytest.fixture
def operator():
    return log_in(User.objects.create_superuser("operator@penstock.test"))


def pending():
    return sum(Budget.objects.values_list("pending_nanos", flat=True))


def test_a_thousand_leases_are_released_and_each_is_on_record():
    customers = [make_customer(f"Customer {number}") for number in range(20)]
    for one in customers:
        give_credit(one, 10_000_000)
    for _ in range(50):
        asks = [LeaseAsk(new_id(), one.balance, 1_000, 1_000, NOW) for one in customers]
        grant_leases(gateway_id=GATEWAY, asks=asks, lineage=database_id(), now=NOW)
    assert pending() == 1_000_000
    expected = Held(1_000, 1_000_000, 20)
    assert held_by(GATEWAY, now=LATER) == expected
    assert pending() == 1_000_000
    assert release() == expected
    assert pending() == 0
    assert not Lease.objects.filter(voided_at__isnull=True).exists()
    deeds = AuditEvent.objects.filter(action="lease.void")
    assert {deed.details["reason"] for deed in deeds} == {"disk lost"}
    assert sum(deed.details["held_nanos"] for deed in deeds) == 1_000_000
    assert deeds.count() == 1_000
    with pytest.raises(Conflict, match="no open lease"):
        release()


def test_a_gateway_with_a_lease_that_did_not_end_long_ago_is_refused(customer):
    give_credit(customer, 1_000_000)
    ask_for(customer.balance, 100)
    ask_for(customer.balance, 200, now=LATER - timedelta(hours=1))
    for verb in (release, lambda: held_by(GATEWAY, now=LATER)):
        with pytest.raises(Conflict, match="may be alive"):
            verb()
    assert pending() == 300
    assert release(now=LATER + timedelta(minutes=16)).held_nanos == 300


def test_other_gateways_keep_what_they_hold(customer):
    give_credit(customer, 1_000_000)
    ask_for(customer.balance, 100)
    ask_for(customer.balance, 30, gateway="gw_2")
    ask_for(customer.balance, 7, gateway="gw_3", now=LATER)
    assert release() == Held(1, 100, 1)
    assert pending() == 37


def test_what_is_busy_stays_and_the_next_run_goes_on(customer, monkeypatch):
    give_credit(customer, 1_000_000)
    for need in (1, 2, 4):
        ask_for(customer.balance, need)
    monkeypatch.setattr(lost_gateways, "AT_ONCE", 1)
    lock, calls = lost_gateways.lock_budgets, []

    def busy_once(rows):
        calls.append(rows)
        if len(calls) == 2:
            raise BusyError
        lock(rows)

    monkeypatch.setattr(lost_gateways, "lock_budgets", busy_once)
    assert release() == Held(2, 5, 1)
    assert pending() == 2
    assert release() == Held(1, 2, 1)


def test_only_operators_who_keep_the_books_release_and_not_without_a_reason(customer):
    give_credit(customer, 1_000_000)
    ask_for(customer.balance, 100)
    people = [User.objects.create_user("stranger@acme.test")] + [
        User.objects.create_user(f"{role}@penstock.test", operator_role=role)
        for role in ("viewer", "support", "catalog")
    ]
    for one in people:
        with pytest.raises(NotPermitted):
            release_gateway(actor=Actor.for_user(one), gateway_id=GATEWAY, reason="mine", now=LATER)
    with pytest.raises(InvalidValue):
        release(reason=" ")
    assert pending() == 100


def test_the_alarms_page_leads_to_the_release_that_says_what_it_gives_back(operator, customer):
    give_credit(customer, 10 * 10**9)
    lose(customer, 2 * 10**9, 10**9)
    assert PAGE in operator.get(ALARMS).content.decode()
    page = operator.get(PAGE).content.decode()
    assert "2 leases holding $3.00" in page and "of 1 organization." in page
    assert "Enter a reason" in operator.post(PAGE, {"reason": " "}).content.decode()
    assert pending() == 3 * 10**9
    answer = operator.post(PAGE, {"reason": "disk lost"}, follow=True)
    assert answer.redirect_chain == [(ALARMS, 302)]
    assert f"{GATEWAY}: 2 leases holding $3.00 released." in answer.content.decode()
    assert PAGE not in answer.content.decode()
    assert pending() == 0
    deed = AuditEvent.objects.filter(action="lease.void").first()
    assert (deed.actor_kind, deed.details["reason"]) == ("user", "disk lost")
    assert "has no open lease" in operator.get(PAGE, follow=True).content.decode()


def test_a_gateway_that_may_be_alive_has_no_button_and_no_door_behind_it(operator, customer):
    give_credit(customer, 10 * 10**9)
    lose(customer, 10**9)
    lose(customer, 10**9, hours=0)
    page = operator.get(ALARMS).content.decode()
    assert "it may be alive" in page and PAGE not in page
    for answer in (
        operator.get(PAGE, follow=True),
        operator.post(PAGE, {"reason": "all"}, follow=True),
    ):
        assert "it may be alive" in answer.content.decode()
    assert pending() == 2 * 10**9


def test_who_may_not_keep_the_books_sees_no_button_and_opens_no_door(customer):
    give_credit(customer, 10 * 10**9)
    lose(customer, 10**9)
    viewer = log_in(User.objects.create_user("clerk@penstock.test", operator_role="viewer"))
    page = viewer.get(ALARMS).content.decode()
    assert "has 1 lease open since" in page and PAGE not in page
    assert viewer.get(PAGE).status_code == 403
    assert viewer.post(PAGE, {"reason": "mine"}).status_code == 403
    member = log_in(User.objects.create_user("member@acme.test"))
    for client in (Client(), member):
        assert client.post(PAGE, {"reason": "mine"}).status_code == 302
    assert pending() == 10**9


def test_the_command_says_first_and_then_releases(customer):
    give_credit(customer, 10 * 10**9)
    lose(customer, 10**9)
    told = StringIO()
    call_command("release_gateway", GATEWAY, "--dry-run", stdout=told)
    assert "1 leases of 1 organizations, $1.00 held; nothing was changed" in told.getvalue()
    with pytest.raises(CommandError, match="Enter why"):
        call_command("release_gateway", GATEWAY)
    assert pending() == 10**9
    call_command("release_gateway", GATEWAY, "--reason", "disk lost", stdout=told)
    assert "$1.00 released" in told.getvalue()
    assert pending() == 0
    with pytest.raises(CommandError, match="no open lease"):
        call_command("release_gateway", GATEWAY, "--reason", "again")
