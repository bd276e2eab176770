"""Replay: SQL prices each event as the one pure function does, whoever has which contract."""

from collections import defaultdict
from datetime import UTC, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.economics.replay import Band, Replayed, charge_sql, replay_day
from billing.metering.ingest import ingest
from billing.metering.models import Day
from billing.rating.rate import rate
from control.pricing.models import Price, PriceBook
from control.pricing.selectors import contract_terms
from serving.contract.price import band_of, charge
from tests.fixtures.usage import NOW, Customer, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
TODAY = NOW.date()
MIDNIGHT = datetime.combine(TODAY, time(), UTC)
METERS = ("input_nanos", "cached_input_nanos", "output_nanos")
HOUR = timedelta(hours=1)

# Arithmetic

TOKENS = st.integers(0, 2**31 - 1)
HALVES = st.sampled_from([1, 499_999, 500_000, 500_001, 1_500_000])
PRICES = st.one_of(HALVES, st.integers(0, 3_000_000), st.integers(0, 2**63 - 1))


@st.composite
def requests(draw: st.DrawFn) -> dict[str, int]:
    tokens = draw(st.one_of(st.integers(0, 3), st.integers(0, 4_000), TOKENS))
    return {
        "input_tokens": tokens,
        "cached_input_tokens": draw(st.integers(0, tokens)),
        "output_tokens": draw(TOKENS),
        **{name: draw(PRICES) for name in METERS},
    }


ROWS = f"""
SELECT {charge_sql("row", "row")} FROM unnest(%s::int[], %s::int[], %s::int[],
    %s::bigint[], %s::bigint[], %s::bigint[]) WITH ORDINALITY AS row (input_tokens,
    cached_input_tokens, output_tokens, input_nanos, cached_input_nanos, output_nanos, place)
ORDER BY place
"""  # noqa: S608 -- constants of these modules


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(requests(), min_size=1, max_size=100))
def test_sql_charges_what_the_pure_function_charges(rows: list[dict[str, int]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(ROWS, [[row[name] for row in rows] for name in rows[0]])
        found = [int(row[0]) for row in cursor.fetchall()]
    assert found == [_charge(row) for row in rows]


def _charge(row: dict[str, int]) -> int:
    tokens = {name: row[name] for name in row if name.endswith("_tokens")}
    return charge(SimpleNamespace(**row), **tokens).total_nanos


# Whole days, against a second reckoning that knows nothing of SQL

EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "who": st.integers(0, 2),
            "tier": st.sampled_from(["default", "batch"]),
            "minute": st.integers(0, 12 * 60),
            "input_tokens": st.one_of(st.integers(0, 300), st.sampled_from([99, 100, 101])),
            "output_tokens": st.integers(0, 50),
            "outcome": st.sampled_from(["completed", "client_cancelled", "timed_out"]),
        }
    ),
    max_size=15,
)
METER = st.integers(0, 3_000_000)
BANDS = st.dictionaries(
    st.tuples(st.sampled_from(["default", "batch"]), st.sampled_from([0, 100, 250])),
    st.tuples(METER, METER, METER),
    max_size=5,
)
TERMS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 10), st.integers(1, 6)), max_size=3)


@settings(max_examples=40, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(events=EVENTS, drafted=BANDS, terms=TERMS, is_contract=st.booleans())
def test_a_day_is_what_its_events_come_to_one_by_one(
    price: Price, events: list[Any], drafted: Any, terms: Any, is_contract: bool
) -> None:
    from django.db import transaction

    from tests.fixtures.usage import make_customer

    with transaction.atomic():
        people = [make_customer(f"Customer {n}") for n in range(3)]
        batch_price = add_price(price, "batch")
        sold = {"default": price, "batch": batch_price}
        made = [event_of(people, sold, one) for one in events]
        for n, (who, begins, length) in enumerate(terms):
            start = MIDNIGHT + begins * HOUR + timedelta(seconds=n)
            contract(people[who], price, starts_at=start, ends_at=start + length * HOUR)
        if made:
            assert ingest(make_batch(made), now=NOW).accepted == len(made)
        bands = whole(price, drafted)
        whose = people[0].id if is_contract else None
        found = replay_day(TODAY, bands, organization_id=whose)
        assert found is not None
        assert {key(one): one for one in found} == reckon(made, bands, whose, terms, people)
        transaction.set_rollback(True)


def event_of(people: list[Customer], sold: dict[str, Price], one: dict[str, Any]) -> Any:
    return make_event(
        people[one["who"]],
        sold[one["tier"]],
        tier=one["tier"],
        received_at=MIDNIGHT + timedelta(minutes=one["minute"]),
        input_tokens=one["input_tokens"],
        cached_input_tokens=one["input_tokens"] // 3,
        output_tokens=one["output_tokens"],
        outcome=one["outcome"],
    )


def whole(price: Price, drafted: dict[tuple[str, int], tuple[int, int, int]]) -> list[Band]:
    """Return bands, each with its base."""
    based = {(tier, 0): meters for (tier, _), meters in drafted.items()} | drafted
    return [Band(price.variant_id, *place, *meters) for place, meters in based.items()]


def reckon(
    made: list[Any], bands: list[Band], whose: str | None, terms: Any, people: list[Customer]
) -> dict[Any, Replayed]:
    """Return the lines as a person with the pure function would add them up."""
    sums: dict[Any, list[int]] = defaultdict(lambda: [0] * 7)
    for event in made:
        if whose not in (None, event.organization_id):
            continue
        old = rate(event, SimpleNamespace(**LISTED))
        schedule = sorted((b for b in bands if b.tier == event.tier),
                          key=lambda band: band.input_tokens_min)  # fmt: skip
        kept = bool(schedule) and whose is None and under_contract(event, terms, people)
        new = rate(event, band_of(schedule, event.input_tokens)) if schedule and not kept else old
        row = (1, bool(schedule) and not kept, kept, old.charged_nanos, new.charged_nanos,
               old.waived_nanos, new.waived_nanos)  # fmt: skip
        place = (event.organization_id, event.variant_id, event.tier)
        sums[place] = [a + b for a, b in zip(sums[place], row, strict=True)]
    return {place: Replayed(*place, *row) for place, row in sums.items()}


LISTED = {"input_nanos": 150_000_000, "cached_input_nanos": 75_000_000, "output_nanos": 600_000_000}


def under_contract(event: Any, terms: Any, people: list[Customer]) -> bool:
    """Whether the newest contract that had begun had not ended."""
    starts = [
        (MIDNIGHT + begins * HOUR + timedelta(seconds=n), length)
        for n, (who, begins, length) in enumerate(terms)
        if people[who].id == event.organization_id and event.tier == "default"
    ]
    begun = [(start, length) for start, length in starts if start <= event.received_at]
    return bool(begun) and event.received_at < max(begun)[0] + max(begun)[1] * HOUR


def key(line: Replayed) -> tuple[str, str, str]:
    return line.organization_id, line.variant_id, line.tier


def add_price(price: Price, tier: str) -> Price:
    """Publish the same list price for another tier."""
    book = PriceBook.objects.create(name=tier)
    added = Price.objects.create(book=book, variant=price.variant, tier=tier, **LISTED)
    publish(book, MIDNIGHT - timedelta(days=20))
    return added


def contract(customer: Customer, price: Price, *, starts_at: Any, ends_at: Any = None) -> Price:
    """Publish a contract at list prices."""
    book = PriceBook.objects.create(name="Contract", organization=customer.organization)
    own = Price.objects.create(book=book, variant=price.variant, **LISTED)
    publish(book, starts_at, ends_at=ends_at)
    return own


def publish(book: PriceBook, at: datetime, **fields: Any) -> None:
    PriceBook.objects.filter(id=book.id).update(effective_at=at, published_at=at, **fields)


# What is told apart


def half_price(price: Price, *floors: int) -> list[Band]:
    halves = [value // 2 for value in LISTED.values()]
    return [Band(price.variant_id, "default", floor, *halves) for floor in (0, *floors)]


def test_a_lost_event_counts_as_its_correction(customer: Customer, price: Price) -> None:
    lost = make_event(customer, price, outcome="gateway_lost", input_tokens=0, output_tokens=0,
                      cached_input_tokens=0)  # fmt: skip
    real = make_event(customer, price, event_id=lost.event_id)
    ingest(make_batch([lost]), now=NOW)
    ingest(make_batch([real]), now=NOW)
    (line,) = replay_day(TODAY, half_price(price), organization_id=None) or []
    assert (line.request_count, line.repriced_count) == (1, 1)
    assert (line.charged_nanos, line.draft_nanos) == (132_000, 66_000)


def test_a_contract_draft_reads_its_organization_alone(
    customer: Customer, outsider: Customer, price: Price
) -> None:
    contract(customer, price, starts_at=MIDNIGHT)
    ingest(make_batch([make_event(one, price) for one in (customer, outsider)]), now=NOW)
    (line,) = replay_day(TODAY, half_price(price), organization_id=customer.id) or []
    assert (line.organization_id, line.draft_nanos) == (customer.id, 66_000)
    listed = replay_day(TODAY, half_price(price), organization_id=None) or []
    by_id = {one.organization_id: one for one in listed}
    assert (by_id[customer.id].contract_count, by_id[customer.id].draft_nanos) == (1, 132_000)
    assert (by_id[outsider.id].repriced_count, by_id[outsider.id].draft_nanos) == (1, 66_000)


def test_a_contract_keeps_the_draft_away_for_its_term_alone(
    customer: Customer, outsider: Customer, price: Price
) -> None:
    ends_at = MIDNIGHT + 2 * HOUR
    contract(customer, price, starts_at=MIDNIGHT + HOUR, ends_at=ends_at)
    moment = timedelta(milliseconds=1)
    inside = (MIDNIGHT + HOUR, ends_at - moment)
    outside = (MIDNIGHT + HOUR - moment, ends_at)
    for at in (*inside, *outside):
        made = [make_event(one, price, received_at=at) for one in (customer, outsider)]
        ingest(make_batch(made), now=NOW)
    found = replay_day(TODAY, half_price(price), organization_id=None) or []
    by_id = {one.organization_id: one for one in found}
    mine, other = by_id[customer.id], by_id[outsider.id]
    assert (mine.contract_count, mine.repriced_count) == (2, 2)
    assert mine.draft_nanos == 2 * 132_000 + 2 * 66_000
    assert (other.contract_count, other.draft_nanos) == (0, 4 * 66_000)


def test_days_begin_and_end_at_midnight(customer: Customer, price: Price) -> None:
    moments = (MIDNIGHT - timedelta(milliseconds=1), MIDNIGHT)
    ingest(make_batch([make_event(customer, price, received_at=at) for at in moments]), now=NOW)
    for day in (TODAY - timedelta(days=1), TODAY):
        (line,) = replay_day(day, [], organization_id=None) or []
        assert (line.request_count, line.draft_nanos) == (1, line.charged_nanos)
    assert replay_day(TODAY + timedelta(days=1), [], organization_id=None) == []


def test_an_archived_day_is_gone_not_empty() -> None:
    long_ago = TODAY - timedelta(days=200)
    assert replay_day(long_ago, [], organization_id=None) == []
    Day.objects.create(day=long_ago, archived_at=NOW)
    assert replay_day(long_ago, [], organization_id=None) is None


def test_a_term_ends_where_the_next_begins(customer: Customer, price: Price) -> None:
    contract(customer, price, starts_at=MIDNIGHT)
    contract(customer, price, starts_at=MIDNIGHT + HOUR, ends_at=MIDNIGHT + 2 * HOUR)
    found = sorted((one.starts_at, one.ends_at) for one in contract_terms(MIDNIGHT, NOW))
    ends = (MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR)
    assert found == [(MIDNIGHT, ends[0]), ends]
    assert contract_terms(ends[1], NOW) == []
