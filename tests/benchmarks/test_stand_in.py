"""The stand-in holds to the contract, and books as billing would."""

import pytest

from serving.contract.codec import decode, encode
from serving.contract.feed import RECORD_OF_KIND
from serving.contract.replica import ReplicaRecord
from serving.contract.usage import LeaseCharge, UsageEvent
from serving.feed.changes import parts
from tests.benchmarks.stand_in import BEGAN, StandIn, control_page, replica_page

pytestmark = pytest.mark.unit


def event(event_id: str, *, outcome: str = "completed", charged_nanos: int = 39_000) -> UsageEvent:
    """Return an event of 4 input and 64 output tokens: 4*150 + 64*600 = 39,000 nanos."""
    ids = dict.fromkeys(
        ("gateway_id", "organization_id", "project_id", "key_id", "model_id", "variant_id"), "x"
    )
    return UsageEvent(
        event_id=event_id,
        **ids,
        deployment_id="x",
        price_id="x",
        endpoint="chat",
        tier="default",
        outcome=outcome,
        received_at=BEGAN,
        charges=(LeaseCharge("org_bench", "lease", charged_nanos),),
        input_tokens=4,
        output_tokens=64,
    )


def stand_in() -> StandIn:
    return StandIn(control_page(["ab" * 32]), replica_page("http://127.0.0.1:1"))


def test_every_published_record_holds_to_the_contract() -> None:
    [control] = parts(control_page(["ab" * 32]), RECORD_OF_KIND, begins=True)
    replicas = replica_page("http://127.0.0.1:1")
    [fleet] = parts(replicas, {"replica": ReplicaRecord}, begins=True)
    assert (len(control.updates), len(fleet.updates)) == (9, 1)
    assert not control.rejected + fleet.rejected


def test_an_event_sent_twice_is_booked_once() -> None:
    books = stand_in()
    for _ in range(2):
        books.book(decode(encode(event("e1")), UsageEvent))
    assert (books.tally.completed, books.tally.duplicates) == (1, 1)
    assert books.tally.output_tokens == 64


def test_a_charge_that_is_one_nano_off_is_found() -> None:
    books = stand_in()
    books.book(event("e1"))
    books.book(event("e2", charged_nanos=39_001))
    assert books.tally.wrong_charges == 1


def test_a_waived_event_must_charge_nothing() -> None:
    books = stand_in()
    books.book(event("e1", outcome="engine_failed", charged_nanos=0))
    books.book(event("e2", outcome="engine_failed"))
    assert (books.tally.others, books.tally.wrong_charges) == (2, 1)
