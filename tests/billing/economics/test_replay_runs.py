"""A replay is asked for by an operator, done day by day, and shown; it changes nothing."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from billing.economics import replay_runs
from billing.economics.models import ReplayRun
from billing.economics.replay import replay_day
from billing.economics.replay_admin import percent
from billing.economics.replay_runs import BUSY, advance, cancel_replay, start_replay
from billing.economics.tasks import replay
from billing.metering.ingest import ingest
from billing.metering.models import Day
from control.accounts.models import User
from control.admin.base import row_url
from control.audit.models import AuditEvent
from control.errors import Conflict, InvalidValue, NotPermitted
from control.feed.models import PublishedChange
from control.permissions import Actor
from control.pricing import services as pricing
from control.pricing.models import Price, PriceBook
from tests.fixtures.organizations import OPERATOR
from tests.fixtures.usage import METERS, NOW, Customer, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
TODAY = NOW.date()
YESTERDAY = TODAY - timedelta(days=1)


@pytest.fixture
def book(price: Price) -> PriceBook:
    """A draft at half of all prices."""
    draft = PriceBook.objects.create(id="book_3Fhalf", name="Half")
    halves = {name: value // 2 for name, value in vars(METERS).items()}
    pricing.set_price(actor=OPERATOR, book=draft, variant=price.variant, **halves)
    return draft


def take_in(price: Price, *customers: Customer, days_ago: int = 0) -> None:
    at = NOW - timedelta(days=days_ago, minutes=1)
    ingest(make_batch([make_event(one, price, received_at=at) for one in customers]), now=NOW)


def start(book: PriceBook, **fields: Any) -> ReplayRun:
    values = {"actor": OPERATOR, "first_day": YESTERDAY, "last_day": TODAY, "now": NOW, **fields}
    return start_replay(book=book, **values)


def test_days_add_up_and_the_run_ends(
    customer: Customer, outsider: Customer, price: Price, book: PriceBook
) -> None:
    take_in(price, customer, outsider)
    take_in(price, customer, days_ago=1)
    published = PublishedChange.objects.count()
    run = start(book)
    assert run.state == "queued"
    assert advance(now=NOW)
    run.refresh_from_db()
    assert (run.state, run.done_day_count, run.day_count) == ("running", 1, 2)
    assert advance(now=NOW)
    assert not advance(now=NOW)
    run.refresh_from_db()
    assert run.state == "done"
    found = {one.organization_id: (one.charged_nanos, one.draft_nanos) for one in run.lines.all()}
    assert found == {customer.id: (264_000, 132_000), outsider.id: (132_000, 66_000)}
    assert AuditEvent.objects.filter(action="price_book.replay", target_id=book.id).count() == 1
    assert PublishedChange.objects.count() == published
    assert not PriceBook.objects.get(id=book.id).is_published


def test_a_day_counts_once_though_two_workers_did_it(
    customer: Customer, price: Price, book: PriceBook
) -> None:
    take_in(price, customer, days_ago=1)
    run = start(book)
    for _ in range(2):  # the second one still thinks that yesterday is next
        replay_runs._replay_next(run, NOW)
    assert run.lines.get().request_count == 1
    assert ReplayRun.objects.get().next_day == TODAY


@pytest.mark.django_db(transaction=True)
def test_one_replay_at_a_time(superuser_connection: Any, price: Price, book: PriceBook) -> None:
    start(book)
    superuser_connection.execute("SELECT pg_advisory_lock(%s)", [BUSY])
    assert not advance(now=NOW)
    superuser_connection.execute("SELECT pg_advisory_unlock(%s)", [BUSY])
    assert advance(now=NOW)


@pytest.mark.django_db(transaction=True)
def test_reading_a_day_keeps_no_follower_waiting(
    price: Price, book: PriceBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def look(*_: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_current_xact_id_if_assigned(),"
                " coalesce(current_setting('transaction_timeout', true), '0')"
            )
            seen.append(cursor.fetchone())

    monkeypatch.setattr(replay_runs, "_keep", look)
    start(book)
    advance(now=NOW)
    assert seen == [(None, "0")]


def test_the_prices_are_those_of_the_draft_as_it_was(
    customer: Customer, price: Price, book: PriceBook
) -> None:
    take_in(price, customer)
    run = start(book)
    assert not replay_runs.has_changed(run)
    free = dict.fromkeys(vars(METERS), 0)
    pricing.set_price(actor=OPERATOR, book=book, variant=price.variant, **free)
    replay()
    assert run.lines.get().draft_nanos == 66_000
    assert replay_runs.has_changed(run)


def test_archived_days_are_named(book: PriceBook) -> None:
    long_ago = TODAY - timedelta(days=91)
    Day.objects.create(day=long_ago, archived_at=NOW)
    run = start(book, first_day=long_ago, last_day=long_ago)
    replay()
    run.refresh_from_db()
    assert (run.state, run.gone_days) == ("done", [long_ago])


def test_an_amount_beyond_the_books_fails_in_words(
    customer: Customer, price: Price, book: PriceBook
) -> None:
    take_in(price, customer, days_ago=1)
    dear = {"input_nanos": 10**15, "cached_input_nanos": 0, "output_nanos": 10**15}
    pricing.set_price(actor=OPERATOR, book=book, variant=price.variant, **dear)
    at = NOW - timedelta(days=1)
    long = [make_event(customer, price, received_at=at, output_tokens=10**9) for _ in range(10)]
    ingest(make_batch(long), now=NOW)
    run = start(book)
    replay()
    run.refresh_from_db()
    assert run.state == "failed"
    assert (
        run.failure == f"{YESTERDAY}: the draft comes to an amount beyond what the ledger can hold"
    )
    assert not run.lines.exists()


def test_a_cancelled_replay_keeps_what_was_done_and_goes_no_further(
    customer: Customer, price: Price, book: PriceBook
) -> None:
    take_in(price, customer)
    take_in(price, customer, days_ago=1)
    run = start(book)
    advance(now=NOW)
    run = cancel_replay(actor=OPERATOR, run=run, now=NOW)
    assert (run.state, run.done_day_count) == ("cancelled", 1)
    assert not advance(now=NOW)
    assert run.lines.get().request_count == 1
    entry = AuditEvent.objects.get(action="price_book.replay_cancel", target_id=book.id)
    assert entry.details == {"done_days": 1, "days": 2}
    with pytest.raises(Conflict, match="already cancelled"):
        cancel_replay(actor=OPERATOR, run=run, now=NOW)


def test_of_a_replay_cancelled_under_way_the_day_under_way_is_not_added(
    customer: Customer, price: Price, book: PriceBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*arguments: Any, **options: Any) -> Any:
        found = replay_day(*arguments, **options)
        cancel_replay(actor=OPERATOR, run=run, now=NOW)
        return found

    take_in(price, customer, days_ago=1)
    run = start(book)
    monkeypatch.setattr(replay_runs, "replay_day", meanwhile)
    replay()
    run.refresh_from_db()
    assert (run.state, run.done_day_count) == ("cancelled", 0)
    assert not run.lines.exists()


def test_only_operators_cancel_and_only_what_is_not_over(book: PriceBook) -> None:
    run = start(book)
    stranger = Actor.for_user(User.objects.create_user("stranger@acme.test"))
    with pytest.raises(NotPermitted):
        cancel_replay(actor=stranger, run=run, now=NOW)
    replay()
    with pytest.raises(Conflict, match="already done"):
        cancel_replay(actor=OPERATOR, run=run, now=NOW)


def test_an_outage_is_no_failure(book: PriceBook, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise DatabaseError

    run = start(book)
    monkeypatch.setattr(replay_runs, "replay_day", away)
    with pytest.raises(DatabaseError):
        advance(now=NOW)
    run.refresh_from_db()
    assert run.state == "queued"


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [(0, -1, "before it begins"), (0, 1, "future days"), (-92, 0, "at most 92 days")],
)
def test_senseless_periods_are_refused(book: PriceBook, first: int, last: int, words: str) -> None:
    days = {"first_day": TODAY + timedelta(days=first), "last_day": TODAY + timedelta(days=last)}
    with pytest.raises(InvalidValue, match=words):
        start(book, **days)


def test_only_whole_drafts_are_replayed_and_only_by_operators(
    price: Price, book: PriceBook
) -> None:
    with pytest.raises(Conflict, match="only drafts"):
        start(price.book)
    with pytest.raises(InvalidValue, match="no prices"):
        start(pricing.draft_book(actor=OPERATOR, name="Empty"))
    stranger = Actor.for_user(User.objects.create_user("stranger@acme.test"))
    with pytest.raises(NotPermitted):
        start(book, actor=stranger)
    assert not ReplayRun.objects.exists()


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(1, 3, "+33.33"), (-1, 8, "-12.50"), (0, 5, "0.00"), (5, 0, "-"), (1, 20_000, "+0.01"),
     (-1, 20_001, "0.00"), (1_234, 1, "+123,400.00")],
)  # fmt: skip
def test_percent(part: int, whole: int, shown: str) -> None:
    assert percent(part, whole) == shown


# Pages


def log_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator() -> Client:
    return log_in(User.objects.create_superuser("operator@penstock.test"))


def test_from_the_draft_to_the_result_and_back(
    operator: Client, customer: Customer, outsider: Customer, price: Price, book: PriceBook
) -> None:
    take_in(price, customer)
    take_in(price, customer, outsider, days_ago=1)
    draft_page = row_url("admin:pricing_pricebook_change", book.pk)
    link = row_url("admin:pricing_pricebook_replay", book.pk)
    assert link in operator.get(draft_page).content.decode()
    form = operator.get(link, follow=True).context["adminform"].form
    assert form["book"].value() == book.id
    last = timezone.now().date().replace(day=1) - timedelta(days=1)
    assert form["last_day"].value() == last
    values = {"book": book.id, "first_day": str(YESTERDAY), "last_day": str(TODAY)}
    reply = operator.post(reverse("admin:economics_replayrun_add"), values)
    result = reverse("admin:economics_replayrun_change", args=[ReplayRun.objects.get().pk])
    assert (reply.status_code, reply.headers["location"]) == (302, result)
    assert 'http-equiv="refresh"' in operator.get(result).content.decode()
    replay()
    page = operator.get(result).content.decode()
    assert "refresh" not in page
    assert page.index("All organizations") < page.index("Acme") < page.index("Outsider")
    assert "-$0.000198" in page  # 3 requests at half of 132,000 nanos
    assert "-50.00" in page
    assert "penstock-demo:bf16 default" in page
    assert customer.id not in page
    assert draft_page in page
    assert row_url("admin:pricing_pricebook_publish", book.pk) in page
    listing = operator.get(reverse("admin:economics_replayrun_changelist"))
    assert "done" in listing.content.decode()


def test_the_page_shows_progress_and_cancels(operator: Client, book: PriceBook) -> None:
    run = start(book)
    advance(now=NOW)
    page = reverse("admin:economics_replayrun_change", args=[run.pk])
    shown = operator.get(page).content.decode()
    assert 'max="2" value="1"' in shown
    reply = operator.post(page)
    assert (reply.status_code, reply.headers["location"]) == (302, page)
    shown = operator.get(page).content.decode()
    assert "Cancelled on" in shown
    assert "after 1 of 2 days" in shown
    assert "<progress" not in shown
    assert "already cancelled" in operator.post(page, follow=True).content.decode()


def test_without_a_broker_a_replay_waits_for_the_next_beat(
    operator: Client,
    book: PriceBook,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    def away() -> None:
        raise ConnectionError

    monkeypatch.setattr(replay, "delay", away)
    values = {"book": book.id, "first_day": str(YESTERDAY), "last_day": str(TODAY)}
    with django_capture_on_commit_callbacks(execute=True) as called:
        assert operator.post(reverse("admin:economics_replayrun_add"), values).status_code == 302
    assert called
    assert ReplayRun.objects.get().state == "queued"


def test_published_books_offer_no_replay(operator: Client, price: Price) -> None:
    page = operator.get(row_url("admin:pricing_pricebook_change", price.book.pk))
    assert row_url("admin:pricing_pricebook_replay", price.book.pk) not in str(page.content)


def test_nobody_else_sees_or_asks(customer: Customer, book: PriceBook) -> None:
    run = start(book)
    pages = (
        reverse("admin:economics_replayrun_add"),
        reverse("admin:economics_replayrun_changelist"),
        reverse("admin:economics_replayrun_change", args=[run.pk]),
    )
    for client in (Client(), log_in(User.objects.create_user("member@acme.test"))):
        for page in pages:
            assert client.get(page).status_code == 302
        assert client.post(pages[0], {"book": book.id}).status_code == 302
        assert client.post(pages[2]).status_code == 302
    assert ReplayRun.objects.get().state == "queued"
