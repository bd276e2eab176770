"""The change feed: ordered whoever publishes, complete from any version, fast."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test import AsyncClient, Client
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from control.api_keys.services import revoke_key
from control.feed import views
from control.feed.database_identity import current_database_id
from control.feed.models import CompactionHorizon, PublishedChange
from control.feed.selectors import FeedCursor, FeedCursorExpired, FeedQuery, page_for
from control.feed.services import FeedRecord, compact, publish
from control.feed.views import notifier
from serving.contract.codec import ContractError, encode
from serving.contract.feed import RECORD_OF_KIND, FeedPage
from serving.contract.records import GatewayCountRecord, ProjectRecord
from serving.feed.follower import FeedFollower, FeedPosition
from serving.feed.mirror import FeedMirror, RecordTable
from tests.fixtures.credentials import bearer
from tests.fixtures.database import backed_up
from tests.fixtures.organizations import make_organization
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.integration
BEARER = bearer("gateway")
FEED = "/internal/v1/feed"
Step = tuple[str, str | None]
State = dict[tuple[str, str], bytes]


def news(project_id: str, organization_id: str | None) -> FeedRecord:
    """Return a project of an organization, or its deletion."""
    record = organization_id and ProjectRecord(project_id, organization_id, ())
    return FeedRecord("project", project_id, record or None)


def page_after(version: int, known_lineage: str | None = None) -> FeedPage:
    return page_for(FeedQuery(version, known_lineage))


def pages_of_snapshot(limit: int, **asked: Any) -> Iterator[FeedPage]:
    """Yield the pages of a snapshot, each asked for when the one before was read."""
    cursor = None
    while cursor != "":
        page = page_for(FeedQuery(0, limit=limit, cursor=cursor and FeedCursor.of(cursor), **asked))
        yield page
        cursor = page.cursor


def replay(pages: Iterable[FeedPage]) -> State:
    """Return what a follower knows after these pages."""
    state: State = {}
    is_continued = False
    for page in pages:
        if page.snapshot and not is_continued:
            state = {}
        is_continued = page.cursor != ""
        for change in page.changes:
            if change.is_deletion:
                state.pop((change.kind, change.id), None)
            else:
                state[change.kind, change.id] = bytes(change.record)
    return state


def compact_all() -> int:
    return compact(before=timezone.now() + timedelta(seconds=1))


def forget_everything() -> None:
    PublishedChange.objects.all().delete()
    CompactionHorizon.objects.all().delete()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["proj_a", "proj_b", "proj_c"]),
        st.one_of(st.none(), st.sampled_from(["org_1", "org_2"])),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.usefixtures("pooled")
@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS, seen=st.integers(0, 12), compacted=st.integers(0, 12))
def test_a_snapshot_is_the_replay_of_all_changes(
    steps: list[Step], seen: int, compacted: int
) -> None:
    """Whenever a follower comes, and whatever was compacted, it knows the same in the end."""
    forget_everything()
    follower: list[FeedPage] = []
    for number, step in enumerate(steps):
        publish([news(*step)])
        if number == seen:
            follower.append(page_after(0))
        if number == compacted:
            compact_all()
    last = follower[-1].version if follower else 0
    follower.append(page_after(last))
    expected = {}
    for project_id, organization_id in steps:
        expected[project_id] = organization_id
    alive = {("project", name) for name, owner in expected.items() if owner}
    assert replay(follower) == replay([page_after(0)])
    assert set(replay(follower)) == alive


@pytest.mark.usefixtures("pooled")
@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(before=STEPS, during=STEPS, limit=st.integers(1, 4))
def test_the_pages_of_a_snapshot_tell_one_state_whatever_is_published_meanwhile(
    before: list[Step], during: list[Step], limit: int
) -> None:
    forget_everything()
    publish([news(*step) for step in before])
    whole, told = page_after(0), []
    coming = iter(during)
    for page in pages_of_snapshot(limit):
        told.append(page)
        publish([news(*step) for step in [next(coming, None)] if step])
    assert {page.version for page in told} == {whole.version}
    assert replay(told) == replay([whole])
    told.append(page_after(whole.version))
    assert replay(told) == replay([page_after(0)])


@pytest.mark.usefixtures("pooled")
def test_a_snapshot_does_not_go_on_once_the_log_was_compacted() -> None:
    publish([news("proj_a", "org_1"), news("proj_b", "org_1"), news("proj_a", "org_2")])
    pages = pages_of_snapshot(1)
    next(pages)
    compact_all()
    with pytest.raises(FeedCursorExpired):
        next(pages)


@pytest.mark.usefixtures("pooled")
def test_a_reader_of_some_kinds_is_told_of_no_other_and_comes_as_far() -> None:
    kinds = ("fleet_size",)
    publish([news("proj_a", "org_1"), FeedRecord("fleet_size", "all", GatewayCountRecord(1))])
    [snapshot] = pages_of_snapshot(2, kinds=kinds)
    assert [change.kind for change in snapshot.changes] == ["fleet_size"]
    publish([FeedRecord("fleet_size", "all", GatewayCountRecord(2)), news("proj_a", "org_2")])
    page = page_for(FeedQuery(snapshot.version, kinds=kinds))
    assert [change.kind for change in page.changes] == ["fleet_size"]
    assert page.version == page_after(0).version


@pytest.mark.usefixtures("pooled")
async def test_a_reader_of_some_kinds_is_not_woken_by_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "WAIT_SECONDS", 600)
    looked: list[FeedPage] = []
    read_page = views.read_page

    async def looking(asked: FeedQuery) -> FeedPage:
        looked.append(await read_page(asked))
        return looked[-1]

    await in_thread(lambda: publish([news("proj_a", "org_1")]))
    version = (await read_feed(0))["version"]
    monkeypatch.setattr(views, "read_page", looking)
    poll = asyncio.create_task(read_feed(version, kinds="model,deployment"))
    await eventually(lambda: notifier().ring_count, "the listener's first ring")
    await in_thread(lambda: publish([news("proj_b", "org_1")]))
    await eventually(lambda: looked and looked[-1].version == version + 1, "a look at the news")
    await asyncio.sleep(0.1)
    assert not poll.done()
    notifier().close()
    page = await asyncio.wait_for(poll, 60)
    assert (page["version"], page["changes"]) == (version + 1, [])


@pytest.mark.usefixtures("pooled")
async def test_a_snapshot_over_http_goes_on_by_its_cursor() -> None:
    await in_thread(lambda: publish([news(f"proj_{n}", "org_1") for n in range(3)]))
    page = await read_feed(0, limit="2")
    rest = await read_feed(0, limit="2", cursor=page["cursor"])
    assert [each["id"] for each in page["changes"] + rest["changes"]] == [
        f"proj_{n}" for n in range(3)
    ]
    assert (rest["cursor"], rest["snapshot"]) == ("", True)
    for odd in ("", "a/b/c/d/e", "1/2", page["cursor"].replace("/", "0/", 1)):
        query = {"after": "0", "cursor": odd}
        assert (await AsyncClient().get(FEED, query, headers=BEARER)).status_code == 410
    for query in ({"after": "0", "limit": "0"}, {"after": "0", "limit": "x"}):
        assert (await AsyncClient().get(FEED, query, headers=BEARER)).status_code == 400


@pytest.mark.usefixtures("pooled")
def test_versions_are_committed_in_order_under_concurrent_publishers() -> None:
    """8 writers, whose transactions stay open a while; a reader never sees a gap fill up later."""
    stop, seen, versions = threading.Event(), [], [0]

    def write(writer: int) -> None:
        with contextlib.closing(connection):
            for number in range(12):
                with transaction.atomic():
                    publish([news(f"proj_{writer}", f"org_{number}")])
                    time.sleep(0.001)

    def read() -> None:
        with contextlib.closing(connection):
            while not stop.is_set() or page_after(versions[-1]).changes:
                page = page_after(versions[-1])
                seen.extend(change.version for change in page.changes)
                versions.append(page.version)

    publish([news("proj_first", "org_0")])
    with ThreadPoolExecutor(9) as pool:
        reader = pool.submit(read)
        writers = [pool.submit(write, writer) for writer in range(8)]
        for writer in writers:
            writer.result()
        stop.set()
        reader.result()
    assert seen == sorted(seen)
    assert len(seen) == len(set(seen)) == 8 * 12 + 1


@pytest.mark.usefixtures("pooled")
def test_a_rolled_back_transaction_publishes_nothing() -> None:
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        publish([news("proj_a", "org_1")])
        raise ZeroDivisionError
    assert page_after(0).changes == ()


@pytest.mark.usefixtures("pooled")
def test_a_record_that_readers_would_refuse_undoes_its_transaction() -> None:
    bad = FeedRecord("project", "proj_a", ProjectRecord("proj_a", "not an id", ()))
    with pytest.raises(ContractError):
        publish([news("proj_b", "org_1"), bad])
    assert page_after(0).changes == ()


@pytest.mark.usefixtures("pooled")
def test_a_reader_from_before_the_horizon_gets_a_snapshot() -> None:
    publish([news("proj_a", "org_1")])
    old = page_after(0).version
    publish([news("proj_a", None), news("proj_b", "org_1")])
    assert not page_after(old).snapshot
    assert compact_all() == 2
    page = page_after(old)
    assert page.snapshot
    assert [change.id for change in page.changes] == ["proj_b"]


@pytest.mark.usefixtures("pooled")
def test_a_reader_from_the_future_gets_a_snapshot() -> None:
    """The database was restored from a backup: its versions start again further back."""
    publish([news("proj_a", "org_1")])
    page = page_after(page_after(0).version + 1000)
    assert page.snapshot
    assert len(page.changes) == 1


@pytest.mark.usefixtures("pooled")
def test_only_a_reader_of_this_lineage_is_given_changes() -> None:
    publish([news("proj_a", "org_1")])
    version = page_after(0).version
    publish([news("proj_b", "org_1")])
    pages = {
        name: page_after(version, name) for name in (current_database_id(), "another", "", None)
    }
    assert [page.snapshot for page in pages.values()] == [False, True, True, False]
    assert {page.lineage for page in pages.values()} == {current_database_id()}


@pytest.mark.usefixtures("pooled")
def test_a_database_restored_from_backup_leaves_no_gap() -> None:
    """Its versions count on from the backup's, so a reader's version says nothing any more."""

    async def fetch(place: FeedPosition) -> bytes:
        return await in_thread(lambda: encode(page_after(place.version, place.lineage)))

    async def read_on() -> set[str]:
        mirror.apply(await anext(batches))
        return {project.project_id for project in projects.all()}

    projects = RecordTable[ProjectRecord]()
    mirror, batches = (
        FeedMirror({"project": projects}),
        FeedFollower(fetch, RECORD_OF_KIND).batches(),
    )
    publish([news("proj_kept", "org_1")])
    with backed_up() as restore, asyncio.Runner() as reader:
        publish([news("proj_lost", "org_1")])
        assert reader.run(read_on()) == {"proj_kept", "proj_lost"}
        restore()
        publish([news("proj_new", "org_1"), news("proj_last", "org_1")])
        assert reader.run(read_on()) == {"proj_kept", "proj_new", "proj_last"}
        publish([news("proj_kept", None)])
        assert reader.run(read_on()) == {"proj_new", "proj_last"}


@pytest.mark.usefixtures("pooled")
async def test_a_reader_of_another_lineage_is_answered_at_once_and_then_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await in_thread(lambda: publish([news("proj_a", "org_1")]))
    version = (await read_feed(0))["version"]
    monkeypatch.setattr(views, "WAIT_SECONDS", 600)
    page = await read_feed(version, lineage="another")
    assert (page["snapshot"], page["version"]) == (True, version)
    monkeypatch.setattr(views, "WAIT_SECONDS", 0.2)
    began = time.monotonic()
    again = await read_feed(version, lineage=page["lineage"])
    notifier().close()
    assert time.monotonic() - began > 0.2
    assert (again["snapshot"], again["changes"]) == (False, [])


@pytest.mark.usefixtures("pooled")
def test_compacting_twice_removes_nothing_twice() -> None:
    publish([news("proj_a", "org_1"), news("proj_a", "org_2")])
    assert (compact_all(), compact_all()) == (1, 0)


@pytest.mark.usefixtures("pooled")
def test_the_feed_needs_the_secret_and_a_version() -> None:
    publish([news("proj_a", "org_1")])
    client = Client()
    assert client.get(FEED, {"after": 0}).status_code == 401
    wrong = {"authorization": "Bearer wrong"}
    assert client.get(FEED, {"after": 0}, headers=wrong).status_code == 401
    assert client.get(FEED, {"after": "x"}, headers=BEARER).status_code == 400
    assert client.get(FEED, {"after": 0}, headers=BEARER).status_code == 200


async def read_feed(after: int, **known: str) -> dict[str, Any]:
    reply = await AsyncClient().get(FEED, {"after": str(after), **known}, headers=BEARER)
    assert reply.status_code == 200
    return json.loads(reply.content)


@pytest.mark.usefixtures("pooled")
async def test_a_revoked_key_wakes_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is not woken would look by itself in ten minutes."""
    monkeypatch.setattr(views, "POLL_SECONDS", 600)
    monkeypatch.setattr(views, "WAIT_SECONDS", 600)
    org, key = await in_thread(house_with_key)
    version = (await read_feed(0))["version"]
    poll = asyncio.create_task(read_feed(version))
    await eventually(lambda: notifier().ring_count, "the listener's first ring")
    await in_thread(lambda: revoke_key(actor=org.actor, key=key))
    page = await asyncio.wait_for(poll, 60)
    notifier().close()
    assert [(each["id"], each["record"]) for each in page["changes"]] == [(key.id, None)]


@pytest.mark.usefixtures("pooled")
async def test_a_lost_notification_costs_a_while_and_no_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("control.feed.views.CHANNEL", "penstock_nobody_rings")
    monkeypatch.setattr(views, "POLL_SECONDS", 0.1)
    await in_thread(lambda: publish([news("proj_a", "org_1")]))
    version = (await read_feed(0))["version"]
    poll = asyncio.create_task(read_feed(version))
    await eventually(lambda: notifier().ring_count, "the listener's first ring")
    await in_thread(lambda: publish([news("proj_b", "org_1")]))
    page = await asyncio.wait_for(poll, 60)
    notifier().close()
    assert [each["id"] for each in page["changes"]] == ["proj_b"]


@pytest.mark.usefixtures("pooled")
async def test_a_killed_listener_comes_back() -> None:
    waiting = notifier()
    await waiting.wait(waiting.ring_count, 60)
    rung = waiting.ring_count
    await in_thread(kill_listeners)
    await waiting.wait(rung, 60)
    notifier().close()
    assert waiting.ring_count > rung


@pytest.mark.usefixtures("pooled")
async def test_nothing_new_is_an_empty_page_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "WAIT_SECONDS", 0.2)
    await in_thread(lambda: publish([FeedRecord("fleet_size", "all", GatewayCountRecord(1))]))
    version = (await read_feed(0))["version"]
    page = await read_feed(version)
    notifier().close()
    assert page.pop("lineage")
    assert page == {"version": version, "snapshot": False, "changes": [], "cursor": ""}


def house_with_key() -> Any:
    org = make_organization()
    return org, org.mint()[0]


def kill_listeners() -> None:
    url = {**connection.get_connection_params()}
    names = ("dbname", "user", "password", "host", "port")
    with psycopg.connect(**{name: url[name] for name in names if name in url}) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query = 'LISTEN penstock_feed' AND datname = current_database()"
        )


async def in_thread(work: Any) -> Any:
    """Do synchronous work with a database connection that ends with it."""

    def job() -> Any:
        with contextlib.closing(connection):
            return work()

    return await asyncio.to_thread(job)
