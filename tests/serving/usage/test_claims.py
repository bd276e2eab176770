"""Claims on idempotency keys outlive their gateway, until control has heard that they are over."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from serving.contract.idempotency import ClaimEnding, ClaimGrant, ClaimInProgress, IdempotencyClaim
from serving.internal_http import InternalCallError
from serving.usage import claims
from serving.usage.claims import ClaimStateUnknown, IdempotencyClaims
from serving.usage.clock import GatewayClock
from serving.usage.control_api import ControlApi
from serving.usage.journal import JOURNAL, Journal
from tests.fixtures import events
from tests.fixtures.fake_control import FakeControl
from tests.fixtures.gateway import CREDENTIAL
from tests.fixtures.waiting import eventually


@pytest.fixture
async def control() -> AsyncIterator[FakeControl]:
    made = FakeControl()
    async with made.serving():
        yield made


@pytest.fixture
async def api(control: FakeControl) -> AsyncIterator[ControlApi]:
    async with aiohttp.ClientSession() as session:
        yield ControlApi(session, control.url, CREDENTIAL, GatewayClock())


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    made = Journal(tmp_path / JOURNAL)
    yield made
    if made._writer._thread.is_alive():
        await made.close()


def claim(number: int = 1, key: int = 1) -> IdempotencyClaim:
    event_id = f"0199a000-0000-7000-8000-{number:012d}"
    return IdempotencyClaim(event_id, "gw_1", "org_a", f"{key:064x}", f"{1:064x}")


def ending(number: int = 1, *, is_completed: bool = False) -> ClaimEnding:
    return ClaimEnding("org_a", claim(number).event_id, is_completed)


async def left_in(journal: Journal) -> list[ClaimEnding]:
    """What the next life finds."""
    await journal.close()
    path = journal._file._path
    again = Journal(path)
    await again.close()
    return again.recovered_claims


async def test_a_claim_is_in_the_journal_before_control_hears_of_it(
    control: FakeControl, api: ControlApi, journal: Journal
) -> None:
    control.keys.may_claim.clear()
    asking = asyncio.create_task(IdempotencyClaims(api, journal).claim(claim()))

    async def is_noted() -> bool:
        rows = await journal._execute(lambda db: db.execute("SELECT 1 FROM claims").fetchall())
        return bool(rows)

    await eventually(is_noted)
    assert control.keys.asked == []
    assert await left_in(journal) == [ending()]
    control.keys.may_claim.set()
    assert await asking == ClaimGrant()


async def test_what_is_not_ours_is_forgotten(api: ControlApi, journal: Journal) -> None:
    made = IdempotencyClaims(api, journal)
    assert await made.claim(claim(1)) == ClaimGrant()
    assert await made.claim(claim(2)) == ClaimInProgress()
    assert await made.store_response(claim(1), b"sealed")
    assert not await made.store_response(claim(2), b"another")
    assert await left_in(journal) == [ending()]


async def test_that_it_completed_is_durable_with_its_event(journal: Journal) -> None:
    event = events.event()
    await journal.record_claim(event.event_id, "org_a")
    await journal.record_claim(claim().event_id, "org_a")
    await journal.commit(event, completes_claim=True)
    left = await left_in(journal)
    assert set(left) == {ending(), ClaimEnding("org_a", event.event_id, is_completed=True)}


async def test_what_control_has_heard_is_forgotten(
    control: FakeControl, api: ControlApi, journal: Journal
) -> None:
    made = IdempotencyClaims(api, journal)
    await made.claim(claim())
    await made.store_response(claim(), b"sealed")
    told = made.end(ending(is_completed=True))
    await made.send_endings()
    assert told.done()
    [kept] = control.keys.claims.values()
    assert kept.is_completed
    assert await left_in(journal) == []


async def test_what_nobody_answered_for_is_given_up_until_it_is_heard(
    control: FakeControl, api: ControlApi, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "AGAIN_SECONDS", 0.01)
    made = IdempotencyClaims(api, journal)
    control.keys.loses_answers = True
    with pytest.raises(ClaimStateUnknown):
        await made.claim(claim())
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0.1)
    assert made.unsent_count == 1
    control.keys.loses_answers = False
    await eventually(lambda: made.unsent_count == 0)
    assert control.keys.claims == {}
    running.cancel()
    assert await left_in(journal) == []


async def test_giving_up_comes_in_pages(
    control: FakeControl, api: ControlApi, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "ENDINGS_MAX", 3)
    made = IdempotencyClaims(api, journal)
    told = [made.end(ending(number)) for number in range(10)]
    assert made.end(ending(0)) is told[0]
    await made.send_endings()
    assert all(one.done() for one in told)
    assert len(control.keys.early) == 10


async def test_while_control_is_away_it_stays_with_us(
    control: FakeControl, api: ControlApi, journal: Journal
) -> None:
    made = IdempotencyClaims(api, journal)
    await made.claim(claim())
    control.keys.is_down = True
    made.end(ending())
    with pytest.raises(InternalCallError):
        await made.send_endings()
    assert await left_in(journal) == [ending()]
    assert len(control.keys.claims) == 1


async def test_an_answer_is_offered_again_until_it_is_kept_or_time_is_up(
    control: FakeControl, api: ControlApi, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(claims, "KEEP_SECONDS", 0.3)
    made = IdempotencyClaims(api, journal)
    await made.claim(claim())
    control.keys.loses_answers = True
    with pytest.raises(ClaimStateUnknown):
        await made.store_response(claim(), b"sealed")
    monkeypatch.setattr(claims, "KEEP_SECONDS", 60.0)
    offered = asyncio.create_task(made.store_response(claim(), b"sealed"))
    await asyncio.sleep(0.1)
    control.keys.loses_answers = False
    assert await offered
    [kept] = control.keys.claims.values()
    assert kept.sealed == b"sealed"


async def test_a_claim_that_makes_no_sense_holds_up_no_other(
    api: ControlApi, journal: Journal
) -> None:
    for event_id in ("damaged", claim().event_id):
        await journal.record_claim(event_id, "org_a")
    assert await left_in(journal) == [ending()]
