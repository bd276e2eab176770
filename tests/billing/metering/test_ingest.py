"""Ingest books every event once, whatever the order, the repeats and the neighbours."""

import json
from collections import Counter
from datetime import timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from billing.credit.models import Lease, Spend
from billing.credit.selectors import balance
from billing.ledger.models import Transaction
from billing.metering import staging
from billing.metering.ingest import ingest
from billing.metering.models import DeadLetter, HourRollup, Tally, UsageEvent
from control.keys.models import ApiKey
from serving.contract.usage import LeaseCharge
from tests.support.usage import (
    GATEWAY,
    NOW,
    add_key,
    ask_for,
    broken_promises,
    charge_of,
    give_credit,
    make_batch,
    make_event,
    make_price,
    with_lease,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def tallies():
    return {tally.kind: tally.count for tally in Tally.objects.all()}


def test_an_event_is_booked_once_however_often_it_is_sent(customer, price):
    event = make_event(customer, price)
    first = ingest(make_batch([event, event]), now=NOW)
    second = ingest(make_batch([event]), now=NOW)
    assert (first.accepted, first.duplicates) == (1, 1)
    assert (second.accepted, second.duplicates) == (0, 1)
    assert balance(customer.organization, NOW) == -132_000
    assert tallies()["duplicate_event"] == 2
    assert broken_promises() == []


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_order_and_any_repeats_book_each_event_once(customer, outsider, price, data):
    before = UsageEvent.objects.count()
    events = [make_event(one, price) for one in (customer, outsider) * 5]
    sent = data.draw(st.lists(st.sampled_from(events), max_size=30)) + events
    data.draw(st.randoms()).shuffle(sent)
    cut = data.draw(st.integers(0, len(sent)))
    receipts = [ingest(make_batch(part), now=NOW) for part in (sent[:cut], sent[cut:])]
    assert sum(receipt.accepted for receipt in receipts) == len(events)
    assert sum(receipt.duplicates for receipt in receipts) == len(sent) - len(events)
    assert UsageEvent.objects.count() == before + len(events)
    assert broken_promises() == []


def test_one_transaction_per_organization_and_batch(customer, outsider, price):
    ingest(make_batch(make_event(one, price) for one in (customer, outsider) * 10), now=NOW)
    assert Counter(Transaction.objects.values_list("organization_id", flat=True)) == {
        customer.id: 1,
        outsider.id: 1,
    }


@pytest.mark.parametrize("outcome", ["engine_failed", "timed_out", "gateway_lost"])
def test_our_own_failures_are_waived(customer, price, outcome):
    ingest(make_batch([make_event(customer, price, outcome=outcome)]), now=NOW)
    event = UsageEvent.objects.get()
    assert (event.charged_nanos, event.waived_nanos) == (0, 132_000)
    assert balance(customer.organization, NOW) == 0
    assert broken_promises() == []


def test_who_hung_up_pays_for_what_was_generated(customer, price):
    event = make_event(customer, price, outcome="client_cancelled", output_tokens=3)
    ingest(make_batch([event]), now=NOW)
    # 600*150 + 400*75 + 3*600
    assert balance(customer.organization, NOW) == -121_800


def spoiled(customer, price, **changes):
    raw = json.loads(msgspec.json.encode(make_event(customer, price)))
    return json.dumps(raw | changes).encode()


POISON = [
    ({"input_tokens": -1}, "input_tokens"),
    ({"cached_input_tokens": 5_000}, "cached_input_tokens"),
    ({"outcome": "vanished"}, "outcome"),
    ({"schema": 99}, "schema is 99"),
    ({"event_id": "not-a-uuid"}, "UUIDv7"),
    ({"event_id": "6ba7b810-9dad-41d1-80b4-00c04fd430c8"}, "UUIDv7"),
    ({"event_id": "ffffffff-ffff-7fff-bfff-ffffffffffff"}, "calendars"),
    ({"received_at": "2019-01-01T00:00:00Z"}, "90 days"),
    ({"received_at": "0001-01-01T00:00:00Z"}, "90 days"),
    ({"price_id": "price_unknown"}, "price_unknown"),
    ({"input_tokens": 10**9, "output_tokens": 10**9 + 1}, "output_tokens"),
    ({"input_tokens": "NaN"}, "input_tokens"),
]


@pytest.mark.parametrize(("changes", "reason"), POISON)
def test_poison_is_kept_apart_and_its_neighbours_land(customer, price, changes, reason):
    poison = spoiled(customer, price, **changes)
    receipt = ingest(make_batch([poison, make_event(customer, price)]), now=NOW)
    assert receipt.accepted == 1
    assert reason in receipt.dead_lettered[0].reason
    assert bytes(DeadLetter.objects.get().payload) == poison


def test_poison_is_filed_once_however_often_it_comes(customer, price):
    poison = spoiled(customer, price, schema=99)
    for _ in range(3):
        assert len(ingest(make_batch([poison]), now=NOW).dead_lettered) == 1
    assert DeadLetter.objects.count() == 1


@pytest.mark.parametrize("payload", [b"7", b"null", b"[]", b'{"event_id": 5}', b'{"a": "\\u0000"}'])
def test_what_is_no_event_at_all_is_filed(payload):
    assert ingest(make_batch([payload]), now=NOW).dead_lettered[0].event_id == ""


def test_an_absurd_charge_is_not_booked(customer):
    dear = make_price(output_nanos=10**15)  # a dollar a token
    event = make_event(customer, dear, output_tokens=1_000_001)
    receipt = ingest(make_batch([event]), now=NOW)
    assert "the charge would be over" in receipt.dead_lettered[0].reason


def test_a_label_with_a_nul_is_stored_without_it(customer, price):
    ingest(make_batch([make_event(customer, price, client_request_id="a\0b")]), now=NOW)
    assert UsageEvent.objects.get().client_request_id == "ab"


def test_an_event_that_the_database_refuses_stands_alone(customer, price, monkeypatch):
    events = [make_event(customer, price) for _ in range(5)]
    monkeypatch.setattr(staging, "storable", lambda text: "x" * 200 if text == "bad" else text)
    events.insert(2, make_event(customer, price, client_request_id="bad"))
    receipt = ingest(make_batch(events), now=NOW)
    assert receipt.accepted == 5
    assert [dead.event_id for dead in receipt.dead_lettered] == [events[2].event_id]
    assert broken_promises() == []


def test_leases_of_all_budgets_are_settled(customer, price):
    give_credit(customer, 1_000_000)
    event = make_event(customer, price)
    for budget_id in (customer.id, customer.project.id, customer.key.id):
        lease = ask_for(budget_id, 200_000)
        event = with_lease(event, lease.lease_id, budget_id)
    ingest(make_batch([event]), now=NOW)
    assert set(Lease.objects.values_list("settled_nanos", flat=True)) == {132_000}
    assert set(Spend.objects.values_list("charged_nanos", flat=True)) == {132_000}
    assert Spend.objects.count() == 3
    assert tallies() == {}
    assert broken_promises() == []


def test_a_charge_split_over_two_leases_settles_each_part(customer, price):
    give_credit(customer, 1_000_000)
    first, second = ask_for(customer.id, 100_000), ask_for(customer.id, 100_000)
    charges = (
        LeaseCharge(customer.id, first.lease_id, 100_000),
        LeaseCharge(customer.id, second.lease_id, 32_000),
    )
    ingest(make_batch([make_event(customer, price, charges=charges)]), now=NOW)
    settled = dict(Lease.objects.values_list("id", "settled_nanos"))
    assert settled == {first.lease_id: 100_000, second.lease_id: 32_000}
    assert tallies() == {}


def close(lease):
    Lease.objects.filter(id=lease.lease_id).update(closed_at=NOW)


def alarm_cases(customer, outsider):
    """Return lease ids that each raise an alarm, by its kind."""
    foreign = ask_for(outsider.id, 200_000)
    other_gateway = ask_for(customer.id, 200_000, gateway="gw_2")
    closed = ask_for(customer.id, 200_000)
    close(closed)
    return [
        ("unknown_lease", "lease_nowhere"),
        ("foreign_lease", foreign.lease_id),
        ("foreign_lease", other_gateway.lease_id),
        ("closed_lease", closed.lease_id),
    ]


@pytest.mark.parametrize("case", range(4))
def test_usage_on_a_wrong_lease_is_booked_and_raises_an_alarm(customer, outsider, price, case):
    for one in (customer, outsider):
        give_credit(one, 1_000_000)
    kind, lease_id = alarm_cases(customer, outsider)[case]
    receipt = ingest(make_batch([with_lease(make_event(customer, price), lease_id)]), now=NOW)
    assert receipt.accepted == 1
    assert balance(customer.organization, NOW) == 1_000_000 - 132_000
    assert tallies() == {kind: 1}
    assert broken_promises() == []


def test_usage_without_a_lease_raises_an_alarm(customer, price):
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert tallies() == {"missing_lease": 1}


def test_billings_own_rating_is_charged_and_a_difference_raises_an_alarm(customer, price):
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.id, 200_000)
    wrong = (LeaseCharge(customer.id, lease.lease_id, 131_999),)
    ingest(make_batch([make_event(customer, price, charges=wrong)]), now=NOW)
    assert UsageEvent.objects.get().charged_nanos == 132_000
    assert Lease.objects.get().settled_nanos == 132_000
    assert tallies() == {"charge_difference": 1}


def test_a_lease_that_is_overrun_raises_an_alarm_and_fails_the_check(customer, price):
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.id, 100_000)
    ingest(make_batch([with_lease(make_event(customer, price), lease.lease_id)]), now=NOW)
    assert tallies() == {"lease_overrun": 1}
    assert "No lease settled more" in broken_promises()[0]


def test_a_key_shows_when_it_was_last_used(customer, price):
    early, late = NOW - timedelta(hours=2), NOW - timedelta(hours=1)
    for moment in (late, early):
        ingest(make_batch([make_event(customer, price, received_at=moment)]), now=NOW)
    assert ApiKey.objects.get(id=customer.key.id).last_used_at == late


def test_rollups_hold_every_sum(customer, price):
    events = [make_event(customer, price), make_event(add_key(customer), price)]
    events.append(make_event(customer, price, outcome="timed_out", ttft_seconds=None))
    ingest(make_batch(events), now=NOW)
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    mine = HourRollup.objects.get(key_id=customer.key.id)
    assert (mine.request_count, mine.completed_count, mine.timed_out_count) == (3, 2, 1)
    assert (mine.input_tokens, mine.cached_input_tokens, mine.output_tokens) == (3000, 1200, 60)
    assert (mine.charged_nanos, mine.waived_nanos) == (264_000, 132_000)
    assert sum(mine.ttft_counts) == 2
    assert broken_promises() == []


def test_usage_is_charged_to_the_month_it_was_received_in(customer, price):
    october = NOW - timedelta(days=25)
    ingest(make_batch([make_event(customer, price, received_at=october)]), now=NOW)
    assert {str(spend.period) for spend in Spend.objects.all()} == {"2026-10-01"}
    assert broken_promises() == []


def test_a_hundred_charges_sum_exactly_in_the_books(customer, price):
    events = [
        make_event(customer, price, input_tokens=n, cached_input_tokens=n // 3, output_tokens=n % 7)
        for n in range(100)
    ]
    ingest(make_batch(events, GATEWAY), now=NOW)
    assert balance(customer.organization, NOW) == -sum(charge_of(event) for event in events)
