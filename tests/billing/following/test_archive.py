"""Old days move to files that prove what was sealed, step by step, whatever step is the last."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import msgspec
import psycopg
import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from rest_framework.test import APIClient

from billing.credit.selectors import balance_nanos
from billing.following import archive as archiving
from billing.following import parquet
from billing.following.archive import ArchiveError, archive, drop_day, find_event
from billing.metering.ingest import ingest
from billing.metering.models import Day, DeadLetter, UsageEvent
from billing.metering.services import book_again, dismiss
from billing.reading.exports import jsonl_pages
from billing.reading.filters import UsageFilters
from control.alarms.models import AlarmCount
from control.errors import Conflict
from control.permissions import Actor
from tests.fixtures import database
from tests.fixtures.following import catch_up, finish
from tests.fixtures.invoicing import customer_of
from tests.fixtures.organizations import make_organization
from tests.fixtures.usage import NOW, broken_promises, make_batch, make_event, make_price
from tests.fixtures.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db(transaction=True, databases=["default", "owner"]),
]

OLD = NOW - timedelta(days=100)
LATER = NOW - timedelta(days=95)
BEFORE = NOW.date() - timedelta(days=90)
SEALED = LATER + timedelta(days=1, hours=2)
"""When both days are over. Those since then are no part of an archive, and stay open."""


@pytest.fixture
def folder(tmp_path, settings):
    settings.CONFIG = replace(settings.CONFIG, archive_dir=tmp_path)
    return tmp_path


@pytest.fixture
def price():
    return make_price(at=OLD)


@pytest.fixture
def old(customer, outsider, price):
    """Events of an old day, one of which came five days late, and one that was corrected."""
    events = [
        make_event(customer, price, received_at=OLD, client_request_id='a"b\\c, é'),
        make_event(customer, price, received_at=OLD, outcome="gateway_lost"),
        make_event(customer, price, received_at=OLD, ttft_seconds=None, replica_id=None),
        make_event(outsider, price, received_at=OLD),
    ]
    take_in(*events[:3], now=OLD)
    finish(LATER)
    real = msgspec.structs.replace(
        make_event(customer, price, received_at=OLD), event_id=events[1].event_id
    )
    take_in(events[3], real, now=LATER)
    finish(SEALED)
    return events


def take_in(*events, now=NOW):
    ingest(make_batch(events), now=now)


def run(folder, *, before=BEFORE):
    return list(archive(before=before, folder=folder, now=NOW))


def is_there(day):
    return archiving._state(day)[0]


def test_old_days_move_to_files_and_their_partitions_go(old, folder):
    lines = run(folder)
    assert f"{OLD.date()}: 3 records archived" in lines
    assert f"{LATER.date()}: 2 records archived" in lines
    assert f"{OLD.date()}: partition dropped" in lines
    assert not UsageEvent.objects.exists()
    day = Day.objects.get(day=OLD.date())
    assert (day.archived_at, day.dropped_at) == (NOW, NOW)
    assert pq.read_metadata(folder / day.archive_path).num_rows == 3
    assert broken_promises() == []
    assert run(folder) == []


def test_a_partition_stays_while_some_of_it_is_in_no_file(old, folder):
    lines = run(folder, before=LATER.date())
    assert f"{OLD.date()}: partition dropped" not in lines
    assert UsageEvent.objects.count() == 4
    assert broken_promises() == []


def test_receipts_of_archived_days_are_still_shown(old, folder, customer, outsider):
    before = {one.event_id: vars(one) for one in UsageEvent.objects.all()}
    run(folder)
    plain, lost, bare, late = (
        find_event(uuid.UUID(one.event_id), one.organization_id) for one in old
    )
    assert plain.client_request_id == 'a"b\\c, é'
    assert plain.caller.key_id == customer.key.id
    assert (plain.supply.tier, plain.origin.gateway_id) == ("default", "gw_1")
    assert (lost.outcome, lost.output_tokens) == ("completed", 20)
    assert (bare.ttft_seconds, bare.origin.replica_id) == (None, "")
    assert late.accounted_on == LATER.date()
    for one in (plain, bare, late):
        kept = before[one.event_id]
        assert (one.charged_nanos, one.received_at) == (132_000, OLD)
        assert one.digest == kept["digest"]
        assert one.ttft_seconds == pytest.approx(kept["ttft_seconds"])
    assert find_event(plain.event_id, outsider.id) is None


def test_days_within_ingests_reach_stay(old, folder):
    with pytest.raises(ArchiveError, match="within ingest's reach"):
        run(folder, before=NOW.date() - timedelta(days=89))


def test_a_file_that_is_not_what_was_sealed_drops_nothing(old, folder, superuser_connection):
    superuser_connection.execute("UPDATE metering_usage_event SET output_tokens = 21")
    with pytest.raises(ArchiveError, match="is not what was sealed"):
        run(folder)
    assert UsageEvent.objects.count() == 4
    assert not Day.objects.filter(archived_at__isnull=False).exists()


def test_a_file_is_proved_in_groups_of_any_size(customer, outsider, price, folder, monkeypatch):
    monkeypatch.setattr(parquet, "ROW_GROUP", 2)
    for minutes in (0, 0, 0, 1, 3):
        at = OLD + timedelta(minutes=minutes)
        take_in(*(make_event(one, price, received_at=at) for one in (customer, outsider)), now=OLD)
    finish(SEALED)
    assert f"{OLD.date()}: 10 records archived" in run(folder)


def test_a_file_that_lacks_an_organization_or_a_row_is_not_what_was_sealed(old, folder):
    day = OLD.date()
    records = [row for rows in archiving._records(day) for row in rows]
    path = folder / "usage.parquet"
    for kept in (records[:-1], [row for row in records if row[2] != records[0][2]], []):
        parquet.write(path, [kept] if kept else [])
        with pytest.raises(ArchiveError, match="is not what was sealed"):
            archiving._prove(path, day)


def test_proving_a_file_keeps_no_follower_waiting(old, folder, monkeypatch):
    seen, read = [], parquet.read

    def look(path):
        for rows in read(path):
            yield rows
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_current_xact_id_if_assigned()")
                seen.append(cursor.fetchone())

    monkeypatch.setattr(parquet, "read", look)
    run(folder)
    assert set(seen) == {(None,)}


@pytest.mark.parametrize(
    ("module", "step"),
    [(parquet, "write"), (archiving, "_prove"), (parquet, "put_in_place"), (archiving, "drop_day")],
)
def test_a_run_goes_on_where_another_ended(old, folder, monkeypatch, module, step):
    def end(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, step, end)
    with pytest.raises(KeyboardInterrupt):
        run(folder)
    monkeypatch.undo()
    lines = run(folder)
    assert f"{OLD.date()}: partition dropped" in lines
    assert broken_promises() == []
    assert not is_there(OLD.date())


@pytest.mark.parametrize("how", ["detached", "pending"])
def test_a_partition_that_was_detached_is_dropped_the_next_time(old, folder, monkeypatch, how):
    monkeypatch.setattr(archiving, "drop_day", lambda *_, **__: None)
    run(folder)
    part = archiving.partition_name(OLD.date())
    with connections["owner"].cursor() as cursor:
        if how == "detached":
            cursor.execute(f"ALTER TABLE metering_usage_event DETACH PARTITION {part} CONCURRENTLY")
        else:
            _leave_pending(part)
    monkeypatch.undo()
    drop_day(OLD.date(), now=NOW)
    assert not is_there(OLD.date())


def _leave_pending(part):
    """End DETACH CONCURRENTLY between its two transactions: it waits for a reader."""
    detach = f"ALTER TABLE metering_usage_event DETACH PARTITION {part} CONCURRENTLY"
    with (
        connections["default"].cursor() as reader,
        psycopg.connect(database.owner_url(), autocommit=True) as owner,
        ThreadPoolExecutor(1) as threads,
    ):
        reader.execute("BEGIN")
        try:
            reader.execute("SELECT count(*) FROM metering_usage_event")
            detaching = threads.submit(owner.execute, detach)
            wait_until(_is_pending, "the end of the first transaction")
            owner.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled):
                detaching.result(60)
        finally:
            reader.execute("ROLLBACK")
    assert _is_pending()


def _is_pending():
    return archiving._state(OLD.date()) == (True, True, True)


def test_usage_of_a_dropped_day_is_a_dead_letter(old, folder, customer, price):
    run(folder)
    take_in(make_event(customer, price, received_at=OLD), now=LATER)
    assert DeadLetter.objects.get().reason == f"{OLD.date()} is archived"
    assert not is_there(OLD.date())


def test_a_letter_beyond_the_window_is_not_booked_but_dismissed(old, folder, customer, price):
    """Neither of an archived day nor of one that nobody archived yet, nor what was booked then."""
    run(folder)
    funded = balance_nanos(customer.id)
    late = make_event(customer, price, received_at=NOW - timedelta(days=90, hours=1))
    for event in (old[0], late):
        take_in(event)
        letter = DeadLetter.objects.get(event_id=event.event_id)
        with pytest.raises(Conflict, match="can no longer be recorded"):
            book_again(actor=Actor.for_system("tests"), letter=letter, now=NOW)
        dismiss(actor=Actor.for_system("tests"), letter_id=letter.pk, reason="too old", now=NOW)
        letter.refresh_from_db()
        assert (letter.booked_at, letter.dismissed_at) == (None, NOW)
    assert (UsageEvent.objects.count(), balance_nanos(customer.id)) == (0, funded)
    assert not is_there(OLD.date())
    assert broken_promises() == []


def test_the_command_says_what_it_does(old, folder, customer, price):
    out = StringIO()
    call_command("archive", "--before", str(BEFORE), "--dry-run", stdout=out)
    assert f"{OLD.date()}: would be archived" in out.getvalue()
    assert UsageEvent.objects.count() == 4
    with pytest.raises(CommandError, match="within ingest's reach"):
        call_command("archive", "--before", "2999-01-01", stdout=out)


def test_without_a_folder_nothing_is_archived(old, settings):
    settings.CONFIG = replace(settings.CONFIG, archive_dir=None)
    with pytest.raises(CommandError, match="PENSTOCK_ARCHIVE_DIR is not set"):
        call_command("archive")
    catch_up(NOW)


def test_a_file_of_requests_has_archived_days_too(customer, outsider, old, folder):
    """Three of the customer's, the lost one as it really was; none of another's."""
    list(archive(before=BEFORE, folder=folder, now=NOW))
    assert not UsageEvent.objects.filter(organization_id=customer.id).exists()
    mine = jsonl_pages(customer.organization, OLD - timedelta(days=1), NOW)
    found = [json.loads(line) for page in mine for line in page.splitlines()]
    assert sorted(one["request_id"] for one in found) == sorted(one.event_id for one in old[:3])
    assert {one["outcome"] for one in found} == {"completed"}
    early = jsonl_pages(customer.organization, OLD - timedelta(days=3), OLD - timedelta(days=2))
    assert b"".join(early) == b""
    other = jsonl_pages(
        customer.organization, OLD, NOW, filters=UsageFilters(key_ids=(outsider.key.id,))
    )
    assert b"".join(other) == b""


@pytest.fixture
def archived(folder, price):
    """An archived request of a house's, and how its members reach it."""
    org = make_organization("Acme")
    event = make_event(customer_of(org), price, received_at=OLD)
    take_in(event, now=OLD)
    finish(SEALED)
    run(folder)
    assert not UsageEvent.objects.exists()
    client = APIClient()
    client.force_login(org.owner)
    return org, event, client


@pytest.mark.parametrize("loss", ["gone", "broken", "no folder"])
def test_a_file_that_is_not_at_hand_is_said_to_be_so(archived, folder, settings, loss):
    org, event, client = archived
    receipt = f"/api/v1/organizations/{org.id}/requests/{event.event_id}"
    days = f"start_time={int(OLD.timestamp()) - 60}&end_time={int(OLD.timestamp()) + 60}"
    file = f"/api/v1/organizations/{org.id}/requests?format=jsonl&{days}"
    assert client.get(receipt).status_code == 200
    path = folder / Day.objects.get(day=OLD.date()).archive_path
    if loss == "gone":
        path.unlink()
    elif loss == "broken":
        path.write_bytes(b"?")
    else:
        settings.CONFIG = replace(settings.CONFIG, archive_dir=None)
    answers = [client.get(receipt)]
    if loss != "broken":
        answers.append(client.get(file))
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "archive_not_at_hand")
        assert answer["Retry-After"] == "60"
    page = client.get(f"/{org.id}/requests/{event.event_id}")
    assert page.status_code == 503
    assert "Nothing is lost" in page.content.decode()
    assert AlarmCount.objects.get(kind="archive_not_at_hand").count == len(answers) + 1
