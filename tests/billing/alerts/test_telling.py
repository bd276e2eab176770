"""Each alert is told once, in words, to whoever looks after the money, whatever crashes between."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from allauth.account.models import EmailAddress
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.alerts import looking, selectors, telling
from billing.alerts.models import Alert, DaySpend
from billing.alerts.services import choose_alerts
from billing.alerts.spending import sum_days
from billing.alerts.tasks import look_at_budgets, look_at_spending
from billing.credit.models import GrantKind
from billing.invoicing.models import BillingProfile
from billing.metering.ingest import ingest
from control.accounts.models import User
from control.limits.spending import add_limit
from control.organizations.models import Membership
from control.outbox.models import OutboxMessage
from control.permissions import Actor
from control.webhooks.models import WebhookEndpoint, WebhookEvent
from tests.billing.alerts.test_looking import DOLLAR, day_of, spend
from tests.fixtures.mails import delivered, html_of
from tests.fixtures.spending import charge_to, follow, settle
from tests.fixtures.usage import NOW, give_credit, make_batch, make_event, roll_up
from web.console.base import address
from web.console.spending_limits import words_of

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OPERATOR = Actor.for_system("tests")


def seat(customer, role="owner"):
    user = User.objects.create_user(f"{role}.{customer.id}@example.com".lower())
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    Membership.objects.create(user=user, organization=customer.organization, role=role)
    return user.email


def limit(customer, nanos=10 * DOLLAR, *, period="day", is_hard=True, owner=None):
    return add_limit(
        actor=OPERATOR, organization=customer.organization, owner_id=owner or customer.id,
        period=period, limit_nanos=nanos, is_hard=is_hard, now=NOW,
    ).budget_id  # fmt: skip


def test_a_budget_that_is_reached_is_mailed_to_who_looks_after_the_money(customer, outsider):
    people = {seat(customer, role) for role in ("owner", "admin", "billing")}
    seat(customer, "developer")
    seat(outsider)
    budget_id = limit(customer, owner=customer.project.id)
    spend(budget_id, 8 * DOLLAR)
    assert telling.look(now=NOW) == 1
    mails = delivered()
    assert {address for one in mails for address in one.to} == people
    assert mails[0].subject == "80% of the daily spending limit of the project Default reached"
    assert "$8.00 of $10.00" in mails[0].body
    assert "22 November 2026, 00:00 UTC" in mails[0].body
    assert "are refused" in mails[0].body
    link = address(customer.organization, "limit", budget_id)
    assert f'{link}"' in html_of(mails[0])
    assert telling.look(now=NOW) == 0


@pytest.mark.parametrize(
    ("cents", "threshold", "percent"),
    [(500, 50, 50), (730, 50, 73), (999, 80, 99), (2050, 100, 205)],
)
def test_mail_webhook_and_page_say_the_share_that_their_figures_have(
    customer, cents, threshold, percent
):
    seat(customer)
    WebhookEndpoint.objects.create(
        organization=customer.organization, url="https://a.example",
        event_types=["spending_limit.reached"],
    )  # fmt: skip
    spend(limit(customer), cents * DOLLAR // 100)
    assert telling.look(now=NOW) == 1
    (mail,) = delivered()
    reached = f"{percent}% of the daily spending limit of the organization Acme"
    assert mail.subject == f"{reached} reached"
    for text in (mail.body, html_of(mail)):
        assert f"{percent}%" in text
        assert f"This alert is set at {threshold}%." in text
    data = json.loads(WebhookEvent.objects.get().body)["data"]
    assert (data["percent"], data["spent_percent"]) == (threshold, percent)
    (alert,) = selectors.alerts(customer.organization)
    assert words_of(alert, {customer.id: "Acme"}).startswith(f"{percent} % of the daily")
    assert selectors.standings(customer.organization, NOW)[0].percent == percent


def test_whom_the_billing_profile_names_is_told_beside_them_once(customer):
    owner = seat(customer)
    BillingProfile.objects.create(
        organization=customer.organization, recipients=["money@acme.example", owner.upper()]
    )
    spend(limit(customer), 8 * DOLLAR)
    telling.look(now=NOW)
    told = [address for one in delivered() for address in one.to]
    assert sorted(told) == sorted([owner, "money@acme.example"])


def test_names_are_asked_for_once_however_many_alerts_there_are(customer):
    owners = [customer.id, customer.project.id]
    for owner in owners:
        spend(limit(customer, owner=owner), 8 * DOLLAR)
    with CaptureQueriesContext(connection) as asked:
        assert telling.look(now=NOW) == 2
    names = [one for one in asked.captured_queries if 'FROM "organizations_project"' in one["sql"]]
    assert len(names) == 1


def test_a_soft_budgets_mail_says_that_nothing_is_refused(customer):
    seat(customer)
    name = limit(customer, is_hard=False)
    spend(name, 11 * DOLLAR)
    telling.look(now=NOW)
    [mail] = delivered()
    assert mail.subject == "110% of the daily spending limit of the organization Acme reached"
    assert "no requests are refused" in mail.body


def test_a_low_balance_says_what_is_left_and_how_long_it_lasts(customer):
    seat(customer)
    for days in range(7):
        day_of(customer, days, 10 * DOLLAR)
    give_credit(customer, 95 * DOLLAR)
    charge_to(customer, 70 * DOLLAR)
    telling.look(now=NOW)
    charge_to(customer, 25 * DOLLAR)
    telling.look(now=NOW)
    low, empty = delivered()
    assert low.subject == "The credit of Acme is running low: $25.00"
    assert "it lasts 2 days" in low.body
    assert empty.subject == "The credit of Acme is used up"


def test_unusual_spending_names_both_figures(customer):
    seat(customer)
    for days in range(1, 9):
        day_of(customer, days, 10 * DOLLAR)
    day_of(customer, 0, 31 * DOLLAR, DOLLAR)
    assert telling.look_for_unusual(now=NOW) == 1
    [mail] = delivered()
    assert mail.subject == "Acme is spending far more than usual today"
    assert "$31.00 today. A usual day costs $10.00" in mail.body


def test_what_cannot_be_told_is_found_again_and_holds_nobody_up(customer, outsider, monkeypatch):
    seat(customer)
    seat(outsider)
    spend(limit(customer), 9 * DOLLAR)
    spend(limit(outsider), 9 * DOLLAR)
    send = telling.send_mail

    def broken(**values):
        if values["organization_id"] == customer.id:
            raise OSError("no template")
        send(**values)

    with monkeypatch.context() as patch:
        patch.setattr(telling, "send_mail", broken)
        assert telling.look(now=NOW) == 1
    assert telling.look(now=NOW) == 1
    assert len(delivered()) == 2


def test_names_are_data_in_mails(customer):
    seat(customer)
    customer.organization.name = "<b>Acme</b>"
    customer.organization.save()
    spend(limit(customer), 9 * DOLLAR)
    telling.look(now=NOW)
    [mail] = delivered()
    assert "<b>Acme</b>" in mail.body
    assert "<b>Acme</b>" not in html_of(mail)


@pytest.mark.django_db(transaction=True)
def test_many_looks_at_once_tell_once(customer):
    seat(customer)
    spend(limit(customer), 9 * DOLLAR)
    barrier = Barrier(6)

    def look(_):
        try:
            barrier.wait()
            return telling.look(now=NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(look, range(6))) == 1
    assert OutboxMessage.objects.filter(kind="mail").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_crash_before_the_commit_leaves_all_to_the_next_look(customer, monkeypatch):
    seat(customer)
    spend(limit(customer), 9 * DOLLAR)

    class Killed(BaseException):
        pass

    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(telling, "send_mail", die)
        with pytest.raises(Killed):
            telling.look(now=NOW)
    assert not Alert.objects.exists()
    assert telling.look(now=NOW) == 1
    assert len(delivered()) == 1


def test_days_are_summed_from_the_hours_and_again_when_usage_comes_late(customer, price):
    def book(count, at):
        events = [make_event(customer, price, received_at=at) for _ in range(count)]
        ingest(make_batch(events), now=NOW)
        roll_up()

    book(2, NOW - timedelta(days=9))
    book(3, NOW - timedelta(hours=2))
    book(1, NOW - timedelta(hours=1))
    sum_days(now=NOW)
    found = dict(DaySpend.objects.values_list("day", "nanos"))
    nine, today = (NOW - timedelta(days=9)).date(), NOW.date()
    assert found == {nine: 2 * 132_000, today: 4 * 132_000}
    assert DaySpend.objects.get(day=today).busiest_hour_nanos == 3 * 132_000
    book(5, NOW - timedelta(days=1))
    sum_days(now=NOW)
    assert DaySpend.objects.get(day=today - timedelta(days=1)).nanos == 5 * 132_000


def test_the_tasks_run_on_an_empty_platform(db):
    look_at_budgets()
    look_at_spending()
    assert looking.reached(NOW) == []


def test_an_endpoint_that_subscribed_is_told_with_the_figures(customer, outsider):
    for one in (customer, outsider):
        WebhookEndpoint.objects.create(
            organization=one.organization, url="https://hooks.example.com/in",
            event_types=["spending_limit.reached"],
        )  # fmt: skip
    name = limit(customer)
    spend(name, 8 * DOLLAR)
    telling.look(now=NOW)
    [event] = WebhookEvent.objects.all()
    assert (event.organization_id, event.event_type) == (customer.id, "spending_limit.reached")
    data = json.loads(event.body)["data"]
    assert (data["spending_limit_id"], data["percent"]) == (name, 80)
    assert (data["spent_nanos"], data["limit_nanos"]) == (8 * DOLLAR, 10 * DOLLAR)
    assert data["renews_at"] == "2026-11-22T00:00:00+00:00"


def test_however_many_budgets_there_are_no_transaction_is_long(customer, outsider, monkeypatch):
    """Two budgets at a time, each with all of its rules; one that cannot be told is in no way."""
    monkeypatch.setattr(looking, "BUDGETS_MAX", 2)
    seat(customer)
    for period in ("day", "week", "month"):
        for owner in (customer.id, customer.project.id):
            spend(limit(customer, owner=owner, period=period), 10 * DOLLAR)
    pages, find = [], looking.reached

    def noted(now, after=""):
        pages.append(find(now, after))
        return pages[-1]

    tell = telling.tell

    def not_the_first(one, **rest):
        if one.budget_id == pages[0][0].budget_id:
            raise RuntimeError("no")
        tell(one, **rest)

    monkeypatch.setattr(telling, "tell", not_the_first)
    assert telling.tell_all(noted, now=NOW) == 5
    assert [len({one.budget_id for one in page}) for page in pages] == [2, 2, 2, 0]
    assert [len(page) for page in pages] == [6, 6, 6, 0]  # 50, 80 and 100 of each
    monkeypatch.setattr(telling, "tell", tell)
    assert telling.tell_all(looking.reached, now=NOW) == 1
    assert len(delivered()) == 6


def expiring(customer, days, nanos=5 * DOLLAR, **more):
    return give_credit(customer, nanos, expires_at=NOW + timedelta(days=days), **more)


def test_credit_that_expires_soon_is_told_once_for_each_grant(customer, outsider):
    people = {seat(customer, role) for role in ("owner", "billing")}
    seat(customer, "developer")
    WebhookEndpoint.objects.create(
        organization=customer.organization, url="https://a.example", event_types=["credit.expiring"]
    )
    give_credit(customer, 3 * DOLLAR)
    give_credit(outsider, DOLLAR)
    later = expiring(customer, 10)
    assert telling.look(now=NOW) == 0
    expiring(customer, 6, kind=GrantKind.PROMOTIONAL)
    soonest = expiring(customer, 1)
    charge_to(customer, DOLLAR)
    assert telling.look(now=NOW) == 2
    assert telling.look(now=NOW) == 0
    mails = delivered()
    assert {address for one in mails for address in one.to} == people
    assert {one.subject for one in mails} == {
        "$4.00 of prepaid credit of Acme expires soon",
        "$5.00 of promotional credit of Acme expires soon",
    }
    for mail in mails:
        day = "22 November 2026" if "$4.00" in mail.subject else "27 November 2026"
        assert day in mail.body
        assert day in html_of(mail)
    told = [json.loads(each.body)["data"] for each in WebhookEvent.objects.all()]
    [data] = [each for each in told if each["credit_grant_id"] == soonest.id]
    assert (data["remaining_nanos"], data["credit_kind"]) == (4 * DOLLAR, "prepaid")
    assert data["expires_at"] == (NOW + timedelta(days=1)).isoformat()
    assert telling.look(now=NOW + timedelta(days=4)) == 1
    assert Alert.objects.latest("id").rule == later.id


@pytest.mark.parametrize("is_posted", [False, True])
def test_credit_that_is_used_up_is_not_told_to_expire(customer, is_posted):
    seat(customer)
    expiring(customer, 1)
    charge_to(customer, 5 * DOLLAR)
    if is_posted:
        follow(customer, 5 * DOLLAR, before=NOW + timedelta(days=1))
        settle(customer)
    assert looking.expiring(NOW) == []


def test_credit_of_many_is_told_page_by_page(customer, outsider, monkeypatch):
    monkeypatch.setattr(looking, "BUDGETS_MAX", 1)
    for one in (customer, outsider):
        seat(one)
        expiring(one, 1)
        expiring(one, 2)
    charge_to(min(customer, outsider, key=lambda one: one.id), 10 * DOLLAR)
    assert telling.tell_all(looking.expiring, now=NOW) == 2


def test_the_mail_of_a_low_balance_knows_what_expires(customer):
    """Of the $500 that expire in a minute next to nothing is used; $14.99 last for 7 days."""
    seat(customer)
    choose_alerts(
        actor=OPERATOR, organization=customer.organization, low_balance_nanos=600 * DOLLAR,
        low_runway_days=None, unusual_factor=None,
    )  # fmt: skip
    give_credit(customer, 1499 * DOLLAR // 100)
    give_credit(customer, 500 * DOLLAR, expires_at=NOW + timedelta(minutes=1))
    DaySpend.objects.create(
        organization_id=customer.id, day=NOW.date(), nanos=2 * DOLLAR, busiest_hour_nanos=DOLLAR
    )
    charge_to(customer, DOLLAR)
    telling.tell_all(looking.low, now=NOW)
    assert "it lasts 7 days" in delivered()[0].body
