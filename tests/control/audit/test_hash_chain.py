"""The chain of deeds: complete, in order, broken by whatever is changed, taken out or put in."""

import json
from io import StringIO
from threading import Event, Thread

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from control.audit import hash_chain
from control.audit.models import AuditEvent, ChainLink, UnchainedEvent
from control.audit.services import record
from control.permissions import Actor
from control.tasks import chain_audit_events, verify_audit_log

ROBOT = Actor(kind="system", id="", name="tests")


def note(number: int = 0, **details: object) -> AuditEvent:
    return record(
        actor=ROBOT, action="api_key.created", target_kind="api_key", target_id=f"key_{number}",
        target_name=f"Key {number}",
        organization_id="org_1", details=details,
    )  # fmt: skip


def faults() -> list[str]:
    return hash_chain.verify_chain(now=timezone.now()).faults


@pytest.mark.django_db
def test_deeds_enter_the_chain_once_and_in_order() -> None:
    hash_chain.chain_events()
    before = hash_chain.head().position
    deeds = [note(number) for number in range(5)]
    assert hash_chain.chain_events() == 5
    assert hash_chain.chain_events() == 0
    links = ChainLink.objects.filter(position__gt=before).order_by("position")
    assert [link.deed_id for link in links] == [deed.pk for deed in deeds]
    assert [link.position for link in links] == list(range(before + 1, before + 6))
    assert not UnchainedEvent.objects.exists()
    assert faults() == []


@pytest.mark.django_db
def test_long_queues_are_sealed_by_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    hash_chain.chain_events()
    monkeypatch.setattr(hash_chain, "PAGE_DEEDS", 2)
    for number in range(5):
        note(number)
    assert hash_chain.chain_events(pages_max=2) == 4
    assert hash_chain.chain_events() == 1
    assert faults() == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "details",
    [{}, {"name": "a\x7f⟦user1⟧\\\"'"}, {"before": None, "after": [1, 1.5, {"x": "ü\u202e"}]}],
)
def test_whatever_a_deed_says_is_digested(details: dict[str, object]) -> None:
    note(**details)
    hash_chain.chain_events()
    assert faults() == []


@pytest.mark.usefixtures("pooled")
def test_a_deed_that_commits_late_comes_late_and_is_not_missed() -> None:
    began, may_end = Event(), Event()
    late: list[int] = []

    def write_slowly() -> None:
        with transaction.atomic():
            late.append(note(1).pk)
            began.set()
            may_end.wait(60)
        connection.close()

    writer = Thread(target=write_slowly)
    writer.start()
    assert began.wait(60)
    early = note(2).pk
    hash_chain.chain_events()
    may_end.set()
    writer.join()
    assert late[0] < early
    assert hash_chain.chain_events() == 1
    last = ChainLink.objects.order_by("-position").values_list("deed_id", flat=True)[:2]
    assert list(last) == [late[0], early]
    assert faults() == []


@pytest.mark.usefixtures("pooled")
def test_two_sealers_make_one_chain() -> None:
    for number in range(200):
        note(number)

    def work() -> None:
        chain_audit_events()
        connection.close()

    sealers = [Thread(target=work) for _ in range(4)]
    for each in sealers:
        each.start()
    for each in sealers:
        each.join()
    hash_chain.chain_events()
    assert ChainLink.objects.count() == AuditEvent.objects.count()
    assert faults() == []


FORGERIES = {
    "a deed is changed": "UPDATE audit_event SET actor_name = 'somebody else' WHERE id = %(id)s",
    "its time is changed": "UPDATE audit_event SET created_at = created_at - interval '1 day' "
    "WHERE id = %(id)s",
    "its address is changed": "UPDATE audit_event SET address = '203.0.113.9' WHERE id = %(id)s",
    "a link is changed": r"UPDATE audit_chain_link SET digest = '\x00' WHERE deed_id = %(id)s",
    "a link is taken out": "DELETE FROM audit_chain_link WHERE deed_id = %(id)s",
    "a deed is taken out": "DELETE FROM audit_event WHERE id = %(id)s",
    "both are taken out": "DELETE FROM audit_chain_link WHERE deed_id = %(id)s; "
    "DELETE FROM audit_event WHERE id = %(id)s",
    "a deed is put in": "INSERT INTO audit_event (organization_id, actor_kind, actor_id, "
    "actor_name, action, target_kind, target_id, target_name, details, request_id, created_at) "
    "VALUES "
    "('', 'system', '', 'x', 'api_key.created', 'api_key', 'key_9', '', '{}', '', now())",
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_every_forgery_is_found(superuser_connection: psycopg.Connection, forgery: str) -> None:
    deeds = [note(number) for number in range(5)]
    hash_chain.chain_events()
    assert faults() == []
    for statement in FORGERIES[forgery].split(";"):
        superuser_connection.execute(statement, {"id": deeds[2].pk})
    assert faults(), forgery


@pytest.mark.django_db(transaction=True)
def test_an_end_that_was_cut_off_is_missed(superuser_connection: psycopg.Connection) -> None:
    deeds = [note(number) for number in range(3)]
    hash_chain.chain_events()
    noted = hash_chain.head()
    verify_audit_log()
    for table, column in (("audit_chain_link", "deed_id"), ("audit_event", "id")):
        statement = f"DELETE FROM {table} WHERE {column} = %s"  # noqa: S608 -- constants
        superuser_connection.execute(statement, [deeds[2].pk])  # type: ignore[arg-type]
    assert faults() == [f"the chain does not hold {noted} any more"]
    superuser_connection.execute("DELETE FROM audit_chain_verification")
    assert faults() == []  # whoever can write everything can; what was noted elsewhere still tells
    assert hash_chain.verify_chain(now=timezone.now(), noted=[noted]).faults


@pytest.mark.django_db
def test_the_command_prints_what_to_note(capsys: pytest.CaptureFixture[str]) -> None:
    note()
    out = StringIO()
    call_command("verify_audit_log", stdout=out)
    noted = out.getvalue().splitlines()[-1]
    assert noted == str(hash_chain.head())
    call_command("verify_audit_log", holds=[noted], stdout=out)
    as_json = StringIO()
    call_command("verify_audit_log", "--json", stdout=as_json)
    assert json.loads(as_json.getvalue()) == {"events": 1, "head": noted, "faults": []}
    with pytest.raises(CommandError, match="broken"):
        call_command("verify_audit_log", holds=["1:" + "00" * 32], stdout=out)
    with pytest.raises(CommandError, match="enter POSITION:DIGEST"):
        call_command("verify_audit_log", holds=["nonsense"], stdout=out)


@given(contents=st.lists(st.binary(min_size=32, max_size=32), max_size=8), cut=st.integers(0, 8))
def test_a_chain_made_in_parts_is_the_chain_made_at_once(contents: list[bytes], cut: int) -> None:
    rows = list(enumerate(contents))
    start = hash_chain.ChainHead(0, hash_chain.GENESIS)
    whole = hash_chain._links(start, rows)
    first = hash_chain._links(start, rows[:cut])
    middle = hash_chain.ChainHead(first[-1].position, first[-1].digest) if first else start
    parts = first + hash_chain._links(middle, rows[cut:])
    assert [(each.position, each.digest) for each in parts] == [
        (each.position, each.digest) for each in whole
    ]
