"""Ingest books every event once, whatever the order, the repeats and the neighbours."""

import json
from datetime import timedelta

import msgspec
import pytest
from django.db import OperationalError
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from billing.credit.models import Budget, Lease
from billing.credit.selectors import balance_nanos
from billing.credit.services.leases import ClockAheadError, take_back
from billing.metering import ingest as ingesting
from billing.metering import staging
from billing.metering.days import open_day
from billing.metering.ingest import ingest
from billing.metering.models import Day, DeadLetter, UsageCorrection, UsageEvent
from control.alarms.models import AlarmCount
from control.dataplane.gateways import name_gateway
from control.feed.database_identity import database_id
from control.pricing.models import PriceBook
from serving.contract.budget import limit_budget_id
from serving.contract.credential import ServiceIdentity
from serving.contract.lease import LeaseReturn
from serving.contract.usage import LeaseCharge, UsageBatch
from tests.fixtures.usage import (
    GATEWAY,
    METERS,
    NOW,
    Customer,
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
    return {tally.kind: tally.count for tally in AlarmCount.objects.all()}


def test_an_event_is_booked_once_however_often_it_is_sent(customer, price):
    event = make_event(customer, price)
    first = ingest(make_batch([event, event]), now=NOW)
    second = ingest(make_batch([event]), now=NOW)
    assert (first.accepted, first.duplicates) == (1, 1)
    assert (second.accepted, second.duplicates) == (0, 1)
    assert balance_nanos(customer.id) == -132_000
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


def test_an_event_of_anothers_gateway_is_put_aside_and_charges_none_of_its_leases(customer, price):
    first, second = ServiceIdentity("gateway", "eu-1"), ServiceIdentity("gateway", "eu-2")
    for caller, gateway_id in ((first, GATEWAY), (first, "gw_before"), (second, "gw_2")):
        name_gateway(caller, gateway_id)
    give_credit(customer, 10**9)
    granted = ask_for(customer.balance, need=10**6)
    forged = with_lease(make_event(customer, price), granted.lease_id)
    batch = UsageBatch("gw_2", make_batch([forged]).events)
    receipt = ingest(batch, now=NOW, caller=second)
    assert [dead.reason for dead in receipt.dead_lettered] == [
        "gateway_id is of the gateway eu-1; told by gateway.eu-2.1"
    ]
    assert Lease.objects.get().settled_nanos == 0
    own = [forged, make_event(customer, price, gateway_id="gw_before")]
    assert ingest(make_batch(own), now=NOW, caller=first).accepted == 2


@pytest.mark.parametrize("outcome", ["engine_failed", "timed_out", "gateway_lost"])
def test_our_own_failures_are_waived(customer, price, outcome):
    ingest(make_batch([make_event(customer, price, outcome=outcome)]), now=NOW)
    event = UsageEvent.objects.get()
    assert (event.charged_nanos, event.waived_nanos) == (0, 132_000)
    assert balance_nanos(customer.id) == 0
    assert broken_promises() == []


def test_who_hung_up_pays_for_what_was_generated(customer, price):
    event = make_event(customer, price, outcome="client_cancelled", output_tokens=3)
    ingest(make_batch([event]), now=NOW)
    # 600*150 + 400*75 + 3*600
    assert balance_nanos(customer.id) == -121_800


def spoiled(customer, price, **changes):
    raw = json.loads(msgspec.json.encode(make_event(customer, price)))
    return json.dumps(raw | changes).encode()


POISON = [
    ({"input_tokens": -1}, "input_tokens"),
    ({"cached_input_tokens": 5_000}, "cached_input_tokens"),
    ({"outcome": "vanished"}, "outcome"),
    ({"schema": 99}, "schema 99"),
    ({"event_id": "not-a-uuid"}, "UUIDv7"),
    ({"event_id": "6ba7b810-9dad-41d1-80b4-00c04fd430c8"}, "UUIDv7"),
    ({"event_id": "ffffffff-ffff-7fff-bfff-ffffffffffff"}, "calendars"),
    ({"event_id": "016b0000-0000-7000-8000-000000000000"}, "over 90 days ago"),
    ({"event_id": "01a1feff-ffff-7000-8000-000000000000"}, "clock ahead"),
    ({"key_id": "a\tb"}, "key_id"),
    ({"rating": 3}, "rating 3"),
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


def test_a_batch_that_breaks_half_way_is_a_repeat_as_far_as_it_was_booked(
    customer, outsider, price, monkeypatch
):
    """Each of the two parts is one customer's; what the first raised is raised once."""
    batch = make_batch(make_event(one, price) for one in (customer, outsider) * 3)
    monkeypatch.setattr(ingesting, "PART_EVENTS", 3)
    booked = []

    def break_at_the_second(facts, *args, **kwargs):
        if booked:
            raise OperationalError("the database went away")
        booked.extend(fact.event.organization_id for fact in facts.values())
        return book(facts, *args, **kwargs)

    book = ingesting.book
    with monkeypatch.context() as broken, pytest.raises(OperationalError):
        broken.setattr(ingesting, "book", break_at_the_second)
        ingest(batch, now=NOW)
    assert booked == [min(customer.id, outsider.id)] * 3
    assert UsageEvent.objects.count() == tallies()["missing_lease"] == 3
    again = ingest(batch, now=NOW)
    assert (again.accepted, again.duplicates) == (3, 3)
    assert UsageEvent.objects.count() == 6
    assert sum(AlarmCount.objects.filter(kind="missing_lease").values_list("count", flat=True)) == 6
    assert broken_promises() == []


def wire(lease):
    return f"{database_id()}.{lease.pk}"


def test_leases_of_all_budgets_are_settled(customer, price):
    give_credit(customer, 1_000_000)
    event = make_event(customer, price)
    for budget_id in (customer.balance, *map(limit_budget_id, (customer.id, customer.key.id))):
        lease = ask_for(budget_id, 200_000)
        event = with_lease(event, lease.lease_id, budget_id)
    ingest(make_batch([event]), now=NOW)
    assert set(Lease.objects.values_list("settled_nanos", flat=True)) == {132_000}
    assert set(Budget.objects.values_list("posted_nanos", flat=True)) == {132_000}
    assert Budget.objects.count() == 4
    assert set(Budget.objects.filter(leases__isnull=False).values_list("pending_nanos")) == {
        (68_000,)
    }
    assert tallies() == {}
    assert broken_promises() == []


def test_a_charge_split_over_two_leases_settles_each_part(customer, price):
    give_credit(customer, 1_000_000)
    first, second = ask_for(customer.balance, 100_000), ask_for(customer.balance, 100_000)
    charges = (
        LeaseCharge(customer.balance, first.lease_id, 100_000),
        LeaseCharge(customer.balance, second.lease_id, 32_000),
    )
    ingest(make_batch([make_event(customer, price, charges=charges)]), now=NOW)
    settled = {wire(one): one.settled_nanos for one in Lease.objects.all()}
    assert settled == {first.lease_id: 100_000, second.lease_id: 32_000}
    assert UsageEvent.objects.get().lease_nanos == [100_000, 32_000]
    assert tallies() == {}


def alarm_cases(customer, outsider):
    """Return lease ids that each raise an alarm, by its kind."""
    foreign = ask_for(outsider.balance, 200_000)
    other_gateway = ask_for(customer.balance, 200_000, gateway="gw_2")
    closed = ask_for(customer.balance, 200_000)
    back = [LeaseReturn(closed.lease_id, 0, closed=True)]
    take_back(gateway_id=GATEWAY, returns=back, lineage=database_id(), now=NOW)
    november = ask_for(limit_budget_id(customer.id), 200_000)
    return [
        ("unknown_lease", f"{database_id()}.999999"),
        ("unknown_lease", "ffffffffffff.1"),
        ("unknown_lease", "lease_nowhere"),
        ("foreign_lease", foreign.lease_id),
        ("foreign_lease", other_gateway.lease_id),
        ("foreign_lease", november.lease_id),
        ("closed_lease", closed.lease_id),
    ]


@pytest.mark.parametrize("case", range(7))
def test_usage_on_a_wrong_lease_is_booked_and_raises_an_alarm(customer, outsider, price, case):
    for one in (customer, outsider):
        give_credit(one, 1_000_000)
    kind, lease_id = alarm_cases(customer, outsider)[case]
    held = Budget.objects.get(budget_id=customer.balance).pending_nanos
    receipt = ingest(make_batch([with_lease(make_event(customer, price), lease_id)]), now=NOW)
    assert receipt.accepted == 1
    assert balance_nanos(customer.id) == 1_000_000 - 132_000
    assert Budget.objects.get(budget_id=customer.balance).pending_nanos == held
    assert tallies() == {kind: 1}
    assert broken_promises() == []


def test_usage_without_a_lease_raises_an_alarm(customer, price):
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert tallies() == {"missing_lease": 1}


def test_billings_own_rating_is_charged_and_a_difference_raises_an_alarm(customer, price):
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.balance, 200_000)
    wrong = (LeaseCharge(customer.balance, lease.lease_id, 131_999),)
    ingest(make_batch([make_event(customer, price, charges=wrong)]), now=NOW)
    assert UsageEvent.objects.get().charged_nanos == 132_000
    assert Lease.objects.get().settled_nanos == 132_000
    assert tallies() == {"charge_difference": 1}


def test_the_meters_add_up_to_the_charge(customer, price):
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    event = UsageEvent.objects.get()
    # 600*150, 400*75, 20*600
    assert (event.input_nanos, event.cached_input_nanos, event.output_nanos) == (
        90_000, 30_000, 12_000,
    )  # fmt: skip


def test_a_lease_that_is_overrun_raises_an_alarm_and_frees_what_it_held(customer, price):
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.balance, 100_000)
    ingest(make_batch([with_lease(make_event(customer, price), lease.lease_id)]), now=NOW)
    assert tallies() == {"lease_overrun": 1}
    balance = Budget.objects.get(budget_id=customer.balance)
    assert (balance.posted_nanos, balance.pending_nanos) == (132_000, 0)


def test_usage_is_charged_to_the_month_it_was_received_in(customer, price):
    october = NOW - timedelta(days=25)
    ingest(make_batch([make_event(customer, price, received_at=october)]), now=NOW)
    months = Budget.objects.exclude(kind="balance").values_list("starts_at", "posted_nanos")
    assert {(f"{month:%Y-%m}", nanos) for month, nanos in months} == {("2026-10", 132_000)}


def test_a_hundred_charges_sum_exactly(customer, price):
    events = [
        make_event(customer, price, input_tokens=n, cached_input_tokens=n // 3, output_tokens=n % 7)
        for n in range(100)
    ]
    ingest(make_batch(events, GATEWAY), now=NOW)
    assert balance_nanos(customer.id) == -sum(charge_of(event) for event in events)


def lost_and_real(customer, price):
    """Return a request reported as lost, and how it really ended."""
    real = make_event(customer, price)
    nothing = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
    return msgspec.structs.replace(real, outcome="gateway_lost", **nothing), real


def test_what_was_lost_and_then_told_is_charged_once(customer, price):
    lost, real = lost_and_real(customer, price)
    for event in (lost, real, real, lost):
        ingest(make_batch([event]), now=NOW)
    assert balance_nanos(customer.id) == -132_000
    assert UsageEvent.objects.get().outcome == "gateway_lost"
    assert UsageCorrection.objects.get().charged_nanos == 132_000
    assert tallies() == {"missing_lease": 1, "duplicate_event": 2}


def test_the_first_real_outcome_wins_and_another_is_an_alarm(customer, price):
    lost, real = lost_and_real(customer, price)
    other = msgspec.structs.replace(real, output_tokens=9)
    for event in (lost, real, other):
        ingest(make_batch([event]), now=NOW)
    assert balance_nanos(customer.id) == -132_000
    assert tallies()["other_content"] == 1


def test_what_was_told_is_not_lost_again(customer, price):
    lost, real = lost_and_real(customer, price)
    for event in (real, lost):
        ingest(make_batch([event]), now=NOW)
    assert balance_nanos(customer.id) == -132_000
    assert UsageCorrection.objects.count() == 0


@pytest.mark.parametrize("first", [0, 1])
def test_lost_and_real_in_one_batch_charge_the_real_one(customer, price, first):
    both = lost_and_real(customer, price)
    receipt = ingest(make_batch([both[first], both[1 - first]]), now=NOW)
    assert (receipt.accepted, receipt.duplicates) == (1, 1)
    assert balance_nanos(customer.id) == -132_000
    assert UsageEvent.objects.get().outcome == "completed"
    assert UsageCorrection.objects.count() == 0


def test_other_content_in_one_batch_is_an_alarm_too(customer, price):
    event = make_event(customer, price)
    other = msgspec.structs.replace(event, output_tokens=21)
    ingest(make_batch([event, other]), now=NOW)
    assert balance_nanos(customer.id) == -132_000
    assert tallies()["other_content"] == 1


@pytest.fixture
def refusing(monkeypatch):
    """The database refuses what is called bad."""
    monkeypatch.setattr(staging, "storable", lambda text: "x" * 200 if text == "bad" else text)


def test_of_two_contents_in_one_batch_the_one_that_can_be_booked_is(customer, price, refusing):
    """The first is refused: the second is no repeat of anything, and the third is one of it."""
    event = make_event(customer, price)
    absurd = msgspec.structs.replace(event, client_request_id="bad")
    third = msgspec.structs.replace(event, output_tokens=21)
    receipt = ingest(make_batch([absurd, event, third]), now=NOW)
    assert (receipt.accepted, receipt.duplicates) == (1, 1)
    assert [one.event_id for one in receipt.dead_lettered] == [event.event_id]
    assert balance_nanos(customer.id) == -132_000
    assert tallies()["other_content"] == 1


def test_a_real_outcome_that_is_refused_leaves_that_it_was_lost(customer, price, refusing):
    lost, real = lost_and_real(customer, price)
    absurd = msgspec.structs.replace(real, client_request_id="bad")
    receipt = ingest(make_batch([lost, absurd]), now=NOW)
    assert (receipt.accepted, receipt.duplicates, len(receipt.dead_lettered)) == (1, 0, 1)
    assert UsageEvent.objects.get().outcome == "gateway_lost"


def test_the_same_id_with_other_content_is_an_alarm_and_charges_nothing(customer, price):
    event = make_event(customer, price)
    ingest(make_batch([event]), now=NOW)
    receipt = ingest(make_batch([msgspec.structs.replace(event, output_tokens=21)]), now=NOW)
    assert (receipt.accepted, receipt.duplicates) == (0, 1)
    assert balance_nanos(customer.id) == -132_000
    assert tallies()["other_content"] == 1


def waived(kind):
    """What of the books an event that does not fit has touched."""
    event = UsageEvent.objects.get()
    assert (event.fault, event.is_waived, event.charged_nanos) == (kind, True, 0)
    assert tallies() == {kind: 1}
    assert set(Budget.objects.values_list("posted_nanos", flat=True)) <= {0}
    assert broken_promises() == []


def test_a_key_of_somebody_else_is_waived(customer, outsider, price):
    mixed = Customer(customer.organization, customer.project, outsider.key)
    ingest(make_batch([make_event(mixed, price)]), now=NOW)
    waived("foreign_caller")


def test_an_organization_that_is_nobody_is_waived(customer, price):
    ingest(make_batch([make_event(customer, price, organization_id="org_nobody")]), now=NOW)
    waived("foreign_caller")


def test_a_price_that_is_none_is_waived(customer, price):
    ingest(make_batch([make_event(customer, price, price_id="price_none")]), now=NOW)
    waived("unknown_price")


def test_a_price_of_another_variant_is_waived(customer, price):
    other = make_price("other")
    event = make_event(customer, price, price_id=other.id)
    ingest(make_batch([event]), now=NOW)
    waived("foreign_price")


def test_a_price_of_tomorrow_is_waived(customer):
    tomorrow = make_price(at=NOW + timedelta(days=31))  # in force for 30 days at that moment
    ingest(make_batch([make_event(customer, tomorrow)]), now=NOW)
    waived("early_price")


def supersede(price):
    """Publish another price of the same variant, in force for an hour."""
    moment = NOW - timedelta(hours=1)
    book = PriceBook.objects.create(name="Next")
    type(price).objects.create(book=book, variant=price.variant, **vars(METERS))
    PriceBook.objects.filter(id=book.id).update(effective_at=moment, published_at=moment)


def test_a_price_that_was_in_force_is_charged_as_named(customer, price):
    supersede(price)
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert balance_nanos(customer.id) == -132_000
    assert tallies() == {"missing_lease": 1, "superseded_price": 1}


def test_an_old_gateways_event_settles_by_its_rule_and_tier(customer, price):
    raw = json.loads(msgspec.json.encode(make_event(customer, price, tier="default")))
    del raw["rating"]
    old = json.dumps(raw | {"tier": "standard", "schema": 1}).encode()
    assert ingest(make_batch([old]), now=NOW).accepted == 1
    event = UsageEvent.objects.select_related("supply").get()
    assert (event.rating, event.supply.tier, event.charged_nanos) == (1, "default", 132_000)


def test_late_usage_is_accounted_on_the_first_open_day(customer, price):
    yesterday = NOW.date() - timedelta(days=1)
    Day.objects.create(day=yesterday, closed_at=NOW)
    for hours in (1, 20, 40):
        at = NOW - timedelta(hours=hours)
        ingest(make_batch([make_event(customer, price, received_at=at)]), now=NOW)
    assert set(UsageEvent.objects.values_list("accounted_on", flat=True)) == {NOW.date()}


@pytest.mark.unit
def test_a_day_is_its_own_while_it_is_open():
    today = NOW.date()
    assert open_day(today, None) == today
    assert open_day(today, today - timedelta(days=1)) == today
    assert open_day(today - timedelta(days=9), today) == today + timedelta(days=1)


def test_usage_of_an_archived_day_is_kept_for_a_person(customer, price):
    before = NOW - timedelta(days=50)
    Day.objects.create(day=before.date(), closed_at=NOW, dropped_at=NOW)
    event = make_event(customer, price, received_at=before)
    receipt = ingest(make_batch([event, make_event(customer, price)]), now=NOW)
    assert receipt.accepted == 1
    assert "is archived" in receipt.dead_lettered[0].reason


def test_a_gateway_that_lives_in_the_future_is_told_so(customer, price):
    batch = make_batch([make_event(customer, price)])
    ahead = msgspec.structs.replace(batch, sent_at=NOW + timedelta(minutes=6))
    with pytest.raises(ClockAheadError, match="clock_ahead"):
        ingest(ahead, now=NOW)
    assert UsageEvent.objects.count() == 0
