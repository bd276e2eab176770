"""Idempotency keys at control: one request of each, whatever comes in which order."""

from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.db import connection
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from control.audit.models import AuditEvent
from control.dataplane import idempotency
from control.dataplane.models import EarlyClaimEnding, IdempotencyQuota
from control.dataplane.models import IdempotencyClaim as Row
from control.errors import NotPermitted
from control.feed.selectors import last_record
from control.organizations.services import set_idempotency_enabled
from control.permissions import Role
from control.tasks import purge_idempotency_keys
from serving.contract import idempotency as contract
from serving.contract.codec import decode, encode
from serving.contract.idempotency import (
    ClaimClosed,
    ClaimConflict,
    ClaimDisabled,
    ClaimEnding,
    ClaimEndings,
    ClaimGrant,
    ClaimInProgress,
    ClaimReplay,
    ClaimStorageFull,
    IdempotencyClaim,
    StoreResponse,
)
from serving.contract.records import OrganizationRecord
from tests.fixtures.credentials import bearer
from tests.fixtures.fake_keys import FakeKeys
from tests.fixtures.organizations import SeededOrganization

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GATEWAY = bearer("gateway")


def event_id(number: int) -> str:
    return str(UUID(int=(7 << 76) | (2 << 62) | number))


def claim_of(
    org: SeededOrganization, number: int = 1, *, key: int = 1, request: int = 1
) -> IdempotencyClaim:
    return IdempotencyClaim(event_id(number), "gw_1", org.id, f"{key:064x}", f"{request:064x}")


def endings_of(claim: IdempotencyClaim, *, is_completed: bool = False) -> ClaimEndings:
    return ClaimEndings((ClaimEnding(claim.organization_id, claim.event_id, is_completed),))


@pytest.fixture
def keyed(org: SeededOrganization) -> SeededOrganization:
    """An organization that takes keys."""
    return turn_on(org)


def turn_on(org: SeededOrganization, takes: bool = True) -> SeededOrganization:
    set_idempotency_enabled(
        actor=org.actor, organization=org.organization, idempotency_enabled=takes
    )
    return org


def ask(claim: IdempotencyClaim, now: datetime = NOW) -> contract.Verdict:
    return idempotency.claim(claim, now=now).verdict


def end(claim: IdempotencyClaim, now: datetime = NOW, *, is_completed: bool = False) -> int:
    return idempotency.end_claim(endings_of(claim, is_completed=is_completed), now=now).changed


def complete(claim: IdempotencyClaim, sealed: bytes | None = b"sealed") -> None:
    """Answer a request to its end."""
    ask(claim)
    assert keep(claim, sealed)
    assert end(claim, is_completed=True) == 1


def keep(claim: IdempotencyClaim, sealed: bytes | None = b"sealed", now: datetime = NOW) -> bool:
    return idempotency.store_response(StoreResponse(claim, sealed), now=now).is_kept


def test_the_first_request_of_a_key_is_its_one(keyed: SeededOrganization) -> None:
    assert ask(claim_of(keyed)) == ClaimGrant()
    assert ask(claim_of(keyed)) == ClaimGrant(), "the same question again"
    assert ask(claim_of(keyed, 2)) == ClaimInProgress()
    assert ask(claim_of(keyed, 2, request=2)) == ClaimConflict()
    assert ask(claim_of(keyed, 3, key=2)) == ClaimGrant()


def test_its_answer_is_everybodys_once_it_completed(keyed: SeededOrganization) -> None:
    ask(claim_of(keyed))
    assert keep(claim_of(keyed))
    assert keep(claim_of(keyed), b"another"), "the same again: the first stays"
    assert not keep(claim_of(keyed, 2), b"another")
    assert ask(claim_of(keyed, 2)) == ClaimInProgress()
    assert end(claim_of(keyed), is_completed=True) == 1
    assert end(claim_of(keyed), is_completed=True) == 0
    assert ask(claim_of(keyed, 2)) == ClaimReplay(event_id(1), b"sealed")
    assert ask(claim_of(keyed, 2, request=2)) == ClaimConflict()


def test_what_is_given_up_leaves_the_key_free(keyed: SeededOrganization) -> None:
    ask(claim_of(keyed))
    assert end(claim_of(keyed)) == 1
    assert ask(claim_of(keyed, 2)) == ClaimGrant()
    assert end(claim_of(keyed)) == 0
    assert ask(claim_of(keyed, 3)) == ClaimInProgress()


def test_what_completed_stays_whatever_is_said_later(keyed: SeededOrganization) -> None:
    complete(claim_of(keyed))
    assert end(claim_of(keyed)) == 0
    assert isinstance(ask(claim_of(keyed, 2)), ClaimReplay)


def test_an_answer_that_was_kept_and_did_not_complete_is_nobodys(keyed: SeededOrganization) -> None:
    ask(claim_of(keyed))
    keep(claim_of(keyed))
    assert end(claim_of(keyed)) == 1
    assert IdempotencyQuota.objects.get().kept_bytes == 0
    assert ask(claim_of(keyed, 2)) == ClaimGrant()


def test_what_was_not_kept_cannot_complete(keyed: SeededOrganization) -> None:
    ask(claim_of(keyed))
    assert end(claim_of(keyed), is_completed=True) == 0
    assert ask(claim_of(keyed, 2)) == ClaimInProgress()


def test_a_claim_that_comes_after_its_end_claims_nothing(keyed: SeededOrganization) -> None:
    end(claim_of(keyed))
    assert ask(claim_of(keyed)) == ClaimClosed()
    assert ask(claim_of(keyed, 2)) == ClaimGrant()


def test_an_ending_of_an_organization_that_is_not_here_is_done_with(
    keyed: SeededOrganization,
) -> None:
    gone = msgspec.structs.replace(claim_of(keyed), organization_id="org_gone")
    assert end(gone) == 0


def test_an_answer_whose_claim_was_forgotten_is_kept_all_the_same(
    keyed: SeededOrganization,
) -> None:
    assert keep(claim_of(keyed))
    end(claim_of(keyed), is_completed=True)
    assert isinstance(ask(claim_of(keyed, 2)), ClaimReplay)
    assert IdempotencyQuota.objects.get().claim_count == 1


def test_organizations_share_no_keys(
    keyed: SeededOrganization, outsider: SeededOrganization
) -> None:
    turn_on(outsider)
    complete(claim_of(keyed))
    ask(claim_of(keyed, 3, key=3))
    assert ask(claim_of(outsider, 2)) == ClaimGrant()
    for number in (1, 3):
        theirs = msgspec.structs.replace(claim_of(keyed, number), organization_id=outsider.id)
        assert end(theirs) == 0
    assert isinstance(ask(claim_of(keyed, 4)), ClaimReplay)
    assert ask(claim_of(keyed, 4, key=3)) == ClaimInProgress()


def test_where_keys_are_not_taken_nothing_is_claimed_or_kept(org: SeededOrganization) -> None:
    assert ask(claim_of(org)) == ClaimDisabled()
    assert keep(claim_of(org))
    assert Row.objects.get().sealed is None


def test_turned_off_the_answers_are_erased_and_the_keys_remembered(
    keyed: SeededOrganization,
) -> None:
    complete(claim_of(keyed))
    turn_on(keyed, takes=False)
    assert [row.sealed for row in Row.objects.all()] == [None]
    assert IdempotencyQuota.objects.get().kept_bytes == 0
    assert ask(claim_of(keyed, 2)) == ClaimDisabled()
    turn_on(keyed)
    assert ask(claim_of(keyed, 2)) == ClaimReplay(event_id(1), None)


def test_there_is_room_for_so_many_keys(
    keyed: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "CLAIMS_MAX", 2)
    for number in (1, 2):
        ask(claim_of(keyed, number, key=number))
    assert ask(claim_of(keyed, 3, key=3)) == ClaimStorageFull(2, 0)
    assert ask(claim_of(keyed, 4, key=1)) == ClaimInProgress()
    end(claim_of(keyed, 1))
    assert ask(claim_of(keyed, 3, key=3)) == ClaimGrant()


def test_there_is_room_for_so_many_bytes(
    keyed: SeededOrganization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "KEPT_BYTES_MAX", 10)
    for number in (1, 2, 3):
        assert ask(claim_of(keyed, number, key=number)) == ClaimGrant()
    assert keep(claim_of(keyed, 1, key=1), b"123456")
    assert keep(claim_of(keyed, 2, key=2), b"too many")
    end(claim_of(keyed, 2, key=2), is_completed=True)
    assert ask(claim_of(keyed, 9, key=2)) == ClaimReplay(event_id(2), None)
    assert keep(claim_of(keyed, 3, key=3), b"1234")
    assert ask(claim_of(keyed, 4, key=4)) == ClaimStorageFull(3, 10)


def test_after_a_day_a_key_is_free_and_its_answer_gone(keyed: SeededOrganization) -> None:
    complete(claim_of(keyed))
    end(claim_of(keyed, 5))
    nearly, over = NOW + timedelta(hours=23, minutes=59), NOW + timedelta(hours=24)
    assert idempotency.purge(now=nearly) == 0
    assert isinstance(ask(claim_of(keyed, 2), nearly), ClaimReplay)
    assert idempotency.purge(now=over) == 1
    shelf = IdempotencyQuota.objects.get()
    assert (shelf.claim_count, shelf.kept_bytes) == (0, 0)
    assert not Row.objects.exists()
    assert not EarlyClaimEnding.objects.exists()


def test_a_key_is_free_after_its_day_before_anybody_cleans_up(keyed: SeededOrganization) -> None:
    complete(claim_of(keyed))
    assert ask(claim_of(keyed, 2, request=2), NOW + timedelta(hours=24)) == ClaimGrant()
    assert IdempotencyQuota.objects.get().kept_bytes == 0


def test_the_worker_forgets(keyed: SeededOrganization, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "FORGOTTEN_AT_ONCE", 2)
    for number in range(5):
        ask(claim_of(keyed, number, key=number))
    assert purge_idempotency_keys() == 5
    assert purge_idempotency_keys() == 0


STEP = st.tuples(
    st.sampled_from(["claim", "keep", "complete", "fail", "hour"]),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(1, 2),
)


@given(st.lists(STEP, max_size=14))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_it_does_as_its_double(
    keyed: SeededOrganization, steps: list[tuple[str, int, int, int]]
) -> None:
    """And all who are told of an answer are told of the same."""
    Row.objects.all().delete()
    EarlyClaimEnding.objects.all().delete()
    IdempotencyQuota.objects.update(claim_count=0, kept_bytes=0)
    clock = [NOW]
    double = FakeKeys(now=lambda: clock[0])
    answers: dict[str, set[str]] = defaultdict(set)
    for verb, number, key, request in steps:
        claim = claim_of(keyed, number * 10 + key * 3 + request, key=key, request=request)
        if verb == "claim":
            reply = idempotency.claim(claim, now=clock[0])
            assert reply == double.claim(claim)
            if isinstance(reply.verdict, ClaimReplay):
                answers[claim.key_digest].add(reply.verdict.event_id)
        elif verb == "keep":
            answer = StoreResponse(claim, b"x" * number)
            assert idempotency.store_response(answer, now=clock[0]) == double.keep(answer)
        elif verb == "hour":
            clock[0] += timedelta(hours=1)
        else:
            endings = endings_of(claim, is_completed=verb == "complete")
            assert idempotency.end_claim(endings, now=clock[0]) == double.end(endings)
    assert all(len(event_ids) == 1 for event_ids in answers.values())
    shelf = IdempotencyQuota.objects.first()
    rows = Row.objects.all()
    assert shelf is None or shelf.claim_count == len(rows)
    assert shelf is None or shelf.kept_bytes == sum(len(row.sealed or b"") for row in rows)


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_is_the_one(org: SeededOrganization) -> None:
    turn_on(org)
    verdicts = at_once([lambda n=n: ask(claim_of(org, n)) for n in range(1, 9)])
    assert Counter(map(type, verdicts)) == {ClaimGrant: 1, ClaimInProgress: 7}
    [first] = [n for n, verdict in enumerate(verdicts, 1) if verdict == ClaimGrant()]
    assert [n for n in range(1, 9) if keep(claim_of(org, n))] == [first]


@pytest.mark.django_db(transaction=True)
def test_of_many_that_answer_at_once_one_is_kept(org: SeededOrganization) -> None:
    """As after a restore, when no claim is known."""
    turn_on(org)
    kept = at_once([lambda n=n: keep(claim_of(org, n), b"%d" % n) for n in range(1, 9)])
    assert kept.count(True) == 1
    assert Row.objects.get().sealed_bytes == 1


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    barrier = Barrier(len(calls))

    def act(call: Callable[[], Any]) -> Any:
        barrier.wait(timeout=60)
        try:
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(act, calls))


def test_gateways_ask_over_http(keyed: SeededOrganization, client: Client) -> None:
    def post(name: str, record: msgspec.Struct, **headers: str) -> Any:
        return client.post(
            f"/internal/v1/idempotency/{name}",
            encode(record),
            content_type="application/json",
            headers=headers or GATEWAY,
        )

    claim = claim_of(keyed)
    answer = StoreResponse(claim, bytes(range(256)))
    assert decode(post("claims", claim).content, contract.ClaimReply).verdict == ClaimGrant()
    assert decode(post("responses", answer).content, contract.StoreResponseReply).is_kept
    assert post("endings", endings_of(claim, is_completed=True)).json() == {"changed": 1}
    told = decode(post("claims", claim_of(keyed, 2)).content, contract.ClaimReply).verdict
    assert told == ClaimReplay(claim.event_id, bytes(range(256)))
    assert post("endings", endings_of(claim)).json() == {"changed": 0}
    assert post("claims", claim, authorization="Bearer wrong").status_code == 401
    wrong = post("claims", endings_of(claim))
    assert wrong.status_code == 400
    assert "event_id" in wrong.json()["error"]


def test_it_is_turned_on_and_off_over_the_api_and_published(
    api: APIClient, base: str, org: SeededOrganization
) -> None:
    assert api.get(base).json()["idempotency_enabled"] is False
    assert api.patch(base, {"idempotency_enabled": True}).json()["idempotency_enabled"]
    record = last_record("organization", org.id)
    assert record is not None
    assert decode(record.encode(), OrganizationRecord).takes_idempotency_keys
    api.patch(base, {"idempotency_enabled": True})
    [entry] = AuditEvent.objects.filter(action="organization.idempotency_updated")
    assert entry.details == {
        "before": {"idempotency_enabled": False},
        "after": {"idempotency_enabled": True},
    }
    assert entry.actor_id == org.owner.id
    assert api.patch(base, {"idempotency_enabled": "perhaps"}).status_code == 400
    api.patch(base, {"idempotency_enabled": False})
    record = last_record("organization", org.id)
    assert record is not None
    assert not decode(record.encode(), OrganizationRecord).takes_idempotency_keys


@pytest.mark.parametrize("role", list(Role))
def test_owners_and_admins_decide(org: SeededOrganization, role: Role) -> None:
    actor = org.actor if role == Role.OWNER else org.actor_of(org.join(role))

    def act() -> None:
        set_idempotency_enabled(
            actor=actor, organization=org.organization, idempotency_enabled=True
        )

    if role in (Role.OWNER, Role.ADMIN):
        act()
    else:
        with pytest.raises(NotPermitted):
            act()
