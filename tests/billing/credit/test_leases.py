"""A gateway gets what is there and never more; what it gives back is free again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection

from billing.credit.models import Budget, Lease
from billing.credit.selectors import available_nanos, budget, lease_terms, recalled_lease_ids
from billing.credit.services.grants import expire_grants, reverse_grant
from billing.credit.services.leases import (
    LEASE_DURATION,
    ClockAheadError,
    ClockBehindError,
    acknowledge_overrun,
    answer,
    charge,
    forget_leases,
    grant_leases,
    release_lease,
    take_back,
    void_abandoned_leases,
)
from billing.metering.ingest import ingest
from control.accounts.models import User
from control.audit.models import AuditEvent
from control.errors import Conflict, NotPermitted
from control.feed.database_identity import database_id
from control.organizations.models import (
    DEFAULT_CREDIT_LIMIT_NANOS,
    BillingMode,
    Organization,
)
from control.organizations.services import set_organization_terms
from control.permissions import Actor
from serving.contract.budget import limit_budget_id
from serving.contract.ids import new_id
from serving.contract.lease import (
    LeaseAsk,
    LeaseDeferral,
    LeaseDenial,
    LeaseGrant,
    LeaseRequest,
    LeaseReturn,
)
from tests.fixtures.books import differences
from tests.fixtures.usage import (
    GATEWAY,
    NOW,
    Customer,
    ask_for,
    give_credit,
    make_batch,
    make_event,
    with_lease,
)

pytestmark = [pytest.mark.integration, pytest.mark.django_db]
OPERATOR = Actor.for_system("tests")
OTHER = "gw_2"
MINUTE = timedelta(minutes=1)
MONTH_END = datetime(2026, 12, 1, tzinfo=UTC)


def poll(*asks: LeaseAsk, gateway: str = GATEWAY, now: datetime = NOW, **fields: Any):
    request = LeaseRequest(gateway_id=gateway, sent_at=now, asks=asks, **fields)
    return answer(request, now=now)


def give_back(lease: LeaseGrant, keep: int = 0, *, closed: bool = False, gateway: str = GATEWAY):
    return poll(gateway=gateway, returns=(LeaseReturn(lease.lease_id, keep, closed),))


def row_of(lease: LeaseGrant) -> Lease:
    return Lease.objects.get(pk=lease.lease_id.partition(".")[2])


def left(customer: Customer) -> int | None:
    return available_nanos(customer.organization, NOW)


def set_terms(customer: Customer, spend_limit_nanos: int | None, billing_mode: str) -> None:
    set_organization_terms(
        actor=OPERATOR,
        organization=customer.organization,
        billing_mode=billing_mode,
        spend_limit_nanos=spend_limit_nanos,
        weight=1,
    )
    customer.organization.refresh_from_db()


def size(need: int, want: int, available: int) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT credit_grant_size(%s, %s, %s)", [need, want, available])
        return cursor.fetchone()[0]


@pytest.mark.parametrize(
    ("available", "granted"),
    [
        (6_000, 1_000),  # an hour's spend is left: ten minutes'
        (5_999, 100),  # less than an hour's: one minute's, 1,000 / 10
        (1_000, 100),  # ten minutes' just so
        (999, 70),  # less than ten minutes': the request alone
        (70, 70),  # all there is
        (69, None),  # not even that
        (0, None),
        (-5, None),
    ],
)
def test_a_grant_shrinks_as_the_money_ends(available, granted):
    """A request needs 70, ten minutes' spend is 1,000."""
    assert size(70, 1_000, available) == granted


@pytest.mark.parametrize("available", [1, 10, 300, 10**6])
def test_a_request_dearer_than_the_wish_gets_its_need(available):
    """A request needs 300, ten minutes' spend is 50."""
    assert size(300, 50, available) == (300 if available >= 300 else None)


def test_a_lease_sets_money_aside(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 10, 100)
    assert lease.granted_nanos == 100
    assert (lease.admits_from, lease.admits_until) == (NOW, NOW + LEASE_DURATION)
    assert lease.period_ends_at is None
    assert lease.lease_id == f"{database_id()}.{row_of(lease).pk}"
    assert left(customer) == 900


def test_asking_again_after_a_lost_answer_grants_nothing_twice(customer):
    give_credit(customer, 1_000)
    ask = LeaseAsk("ask_1", customer.balance, 10, 100, NOW)
    assert poll(ask) == poll(ask)
    assert left(customer) == 900


def test_asking_again_for_a_lease_that_is_over_answers_an_empty_one(customer):
    """A voided lease holds nothing, so its late answer must not be spent."""
    give_credit(customer, 1_000)
    ask = LeaseAsk("ask_1", customer.balance, 10, 100, NOW)
    (lease,) = poll(ask).answers
    give_back(lease, closed=True)
    (again,) = poll(ask).answers
    assert (again.lease_id, again.granted_nanos) == (lease.lease_id, 0)
    assert left(customer) == 1_000


def test_asking_again_in_the_next_period_answers_the_period_of_the_lease(customer):
    ask = LeaseAsk("ask_1", limit_budget_id(customer.id), 10, 10, MONTH_END - MINUTE)
    (first,) = poll(ask, now=MONTH_END - MINUTE).answers
    late = LeaseAsk("ask_1", limit_budget_id(customer.id), 10, 10, MONTH_END + MINUTE)
    (again,) = poll(late, now=MONTH_END + MINUTE).answers
    assert again == first
    assert again.period_ends_at == MONTH_END


def test_another_gateways_ask_is_not_answered_with_its_lease(customer, outsider):
    """Nor does it harm the asks beside it."""
    give_credit(customer, 1_000)
    give_credit(outsider, 1_000)
    stolen = LeaseAsk("ask_1", customer.balance, 10, 100, NOW)
    poll(stolen)
    reply = poll(stolen, LeaseAsk("ask_2", outsider.balance, 10, 10, NOW), gateway=OTHER)
    assert [type(one) for one in reply.answers] == [LeaseDeferral, LeaseGrant]


def test_one_ask_id_for_two_budgets_gets_one_lease(customer, outsider):
    give_credit(customer, 1_000)
    give_credit(outsider, 1_000)
    poll(LeaseAsk("ask_1", customer.balance, 10, 10, NOW))
    (again,) = poll(LeaseAsk("ask_1", outsider.balance, 10, 10, NOW)).answers
    assert isinstance(again, LeaseDeferral)
    assert left(outsider) == 1_000


def test_two_asks_of_one_budget_are_answered_one_by_one(customer):
    give_credit(customer, 1_000)
    first, second = (LeaseAsk(f"ask_{n}", customer.balance, 600, 600, NOW) for n in (1, 2))
    assert [type(one) for one in poll(first, second).answers] == [LeaseGrant, LeaseDeferral]
    waited_for = LeaseAsk(second.ask_id, second.budget_id, 600, 600, NOW, deferred=True)
    assert [type(one) for one in poll(waited_for).answers] == [LeaseDenial]
    assert left(customer) == 400


def test_a_deferred_second_ask_is_granted_in_the_same_poll_when_it_comes_again(customer):
    give_credit(customer, 1_000)
    both = [LeaseAsk(f"ask_{n}", customer.balance, 10, 10, NOW, deferred=True) for n in (1, 2)]
    assert [type(one) for one in poll(*both).answers] == [LeaseGrant, LeaseGrant]


def test_without_credit_the_answer_is_exhausted(customer):
    refused = ask_for(customer.balance, 10)
    assert (refused.code, refused.available_nanos) == ("credit_balance_exhausted", 0)
    assert not refused.recall_in_progress


def test_a_grant_of_credit_works_at_the_next_ask(customer):
    assert isinstance(ask_for(customer.balance, 10), LeaseDenial)
    give_credit(customer, 10)
    assert isinstance(ask_for(customer.balance, 10), LeaseGrant)


@pytest.mark.parametrize(
    "budget_id",
    ["balance:org_nowhere", "limit:org_nowhere", "limit:user_1", "limit:", "org_1", "limit:key"],
)
def test_what_is_no_budget_gets_nothing_and_has_no_row(budget_id):
    refused = ask_for(budget_id, 1)
    assert isinstance(refused, LeaseDenial)
    assert refused.available_nanos == 0
    assert not Budget.objects.exists()


def test_an_outsiders_credit_is_out_of_reach(customer, outsider):
    give_credit(outsider, 1_000)
    assert isinstance(ask_for(customer.balance, 10), LeaseDenial)


def test_absurd_figures_neither_overflow_nor_harm_their_neighbours(customer, outsider):
    set_terms(customer, None, BillingMode.POSTPAID)
    give_credit(outsider, 1_000)
    most = 2**63 - 1
    reply = poll(
        LeaseAsk("ask_1", customer.balance, most, most, NOW),
        LeaseAsk("ask_2", limit_budget_id(customer.id), 10, most, NOW),
        LeaseAsk("ask_3", outsider.balance, 0, most, NOW),
        LeaseAsk("ask_4", limit_budget_id(outsider.id), 0, 0, NOW),
    )
    assert [getattr(one, "granted_nanos", None) for one in reply.answers] == [None, 10, 0, 0]


# Periods


def test_a_lease_ends_with_its_period(customer):
    lease = ask_for(limit_budget_id(customer.id), 10, now=MONTH_END - 5 * MINUTE)
    assert (lease.admits_until, lease.period_ends_at) == (MONTH_END, MONTH_END)
    assert ask_for(customer.balance, 10, now=MONTH_END - 5 * MINUTE).code  # no credit
    balance = budget(customer.balance, MONTH_END)
    assert (balance.starts_at.year, balance.ends_at) == (1970, None)


def test_the_next_periods_lease_is_had_ahead(customer):
    """At 23:45 of the last day: the lease begins at midnight and is of the new month."""
    name = limit_budget_id(customer.id)
    (lease,) = poll(
        LeaseAsk(new_id(), name, 10, 10, MONTH_END), now=MONTH_END - 15 * MINUTE
    ).answers
    assert (lease.period, lease.admits_from) == (MONTH_END, MONTH_END)
    assert lease.admits_until == MONTH_END + LEASE_DURATION
    assert (budget(name, NOW), budget(name, MONTH_END).pending_nanos) == (None, 10)


def test_nobody_leases_a_far_future(customer):
    name = limit_budget_id(customer.id)
    (lease,) = poll(LeaseAsk(new_id(), name, 10, 10, NOW + timedelta(days=60))).answers
    assert lease.admits_from == NOW + 20 * MINUTE
    assert lease.period == datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("off", "error"), [(6 * MINUTE, ClockAheadError), (-25 * 60 * MINUTE, ClockBehindError)]
)
def test_a_gateway_that_lives_at_another_time_is_told_so(off, error):
    with pytest.raises(error):
        answer(LeaseRequest(GATEWAY, NOW + off), now=NOW)


# Giving back


def test_what_is_given_back_is_free_again(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 600)
    for _ in range(2):
        assert give_back(lease, 250).returned == (lease.lease_id,)
        assert left(customer) == 750


def test_a_return_never_raises_a_claim(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 600)
    give_back(lease, 250)
    give_back(lease, 600)
    assert left(customer) == 750


def test_a_closed_lease_holds_nothing_and_is_closed_once(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 600)
    for _ in range(2):
        assert give_back(lease, closed=True).returned == (lease.lease_id,)
        assert left(customer) == 1_000
    assert differences() == []


def test_one_lease_twice_in_a_poll_is_given_back_as_far_as_either_says(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 600)
    twice = (LeaseReturn(lease.lease_id, 500, True), LeaseReturn(lease.lease_id, 100, False))
    assert poll(returns=twice).returned == (lease.lease_id,)
    assert left(customer) == 1_000
    assert differences() == []


def test_a_return_keeps_what_was_settled(customer, price):
    """132,000 of 400,000 are settled: keeping 0 frees the other 268,000."""
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.balance, 400_000)
    ingest(make_batch([with_lease(make_event(customer, price), lease.lease_id)]), now=NOW)
    give_back(lease, 0)
    assert left(customer) == 1_000_000 - 132_000
    assert row_of(lease).keep_nanos == 132_000


def test_a_gateway_cannot_give_back_anothers_lease(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 600)
    assert give_back(lease, gateway=OTHER).returned == (lease.lease_id,)
    assert left(customer) == 400


@pytest.mark.parametrize("name", ["7", "lease", "x.7", "{era}.", "{era}.-7", "{era}.9" + "9" * 30])
def test_what_is_no_lease_is_taken_so_that_it_comes_no_more(name):
    name = name.format(era=database_id())
    assert poll(returns=(LeaseReturn(name, 0, True),)).returned == (name,)


def test_a_negative_claim_gives_back_no_more_than_there_is(customer):
    """The contract refuses it; the database would take it for nothing."""
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 600)
    absurd = LeaseReturn(lease.lease_id, -(2**62), False)
    take_back(gateway_id=GATEWAY, returns=[absurd], lineage=database_id(), now=NOW)
    assert left(customer) == 1_000
    assert differences() == []


# Recalls


def test_idle_money_elsewhere_is_recalled(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 900)
    assert ask_for(customer.balance, 500, gateway=OTHER).recall_in_progress
    assert poll().recalls == (lease.lease_id,)
    assert poll(gateway=OTHER).recalls == ()
    assert give_back(lease, 100).recalls == ()
    assert isinstance(ask_for(customer.balance, 500, gateway=OTHER), LeaseGrant)


def test_a_lease_that_stopped_is_not_recalled_again(customer):
    give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 900)
    give_back(lease, 900)
    assert not ask_for(customer.balance, 500, gateway=OTHER).recall_in_progress
    assert poll().recalls == ()


def test_a_refusal_tells_what_requests_under_way_elsewhere_may_leave(customer):
    """Of what was called back: nobody's own, and not of a gateway that is gone for long."""

    def held(need, gateway=OTHER, now=NOW):
        answer = ask_for(customer.balance, need, gateway=gateway, now=now)
        assert isinstance(answer, LeaseDenial)
        return answer.held_nanos, answer.available_nanos

    give_credit(customer, 100)
    lease = ask_for(customer.balance, 100)
    assert held(60) == (0, 0)  # idle as far as anybody knows: it is called back
    give_back(lease, 70)
    assert held(60) == (70, 30)
    assert held(60, gateway=GATEWAY) == (0, 30)
    assert held(60, now=NOW + timedelta(hours=2)) == (0, 30)


def test_a_gateway_is_not_asked_to_give_back_to_itself(customer):
    give_credit(customer, 1_000)
    ask_for(customer.balance, 900)
    assert not ask_for(customer.balance, 500).recall_in_progress


def test_a_vanished_gateway_is_not_waited_for(customer):
    give_credit(customer, 1_000)
    ask_for(customer.balance, 900)
    later = NOW + LEASE_DURATION
    assert not ask_for(customer.balance, 500, gateway=OTHER, now=later).recall_in_progress


def test_a_lowered_limit_recalls_at_once(customer):
    """800 of 1,000 are leased: a limit of 700 calls them back, one of 800 would not."""
    set_terms(customer, 1_000, BillingMode.POSTPAID)
    lease = ask_for(limit_budget_id(customer.id), 800, now=datetime.now(UTC))
    set_terms(customer, 800, BillingMode.POSTPAID)
    assert recalled_lease_ids(GATEWAY, database_id()) == ()
    set_terms(customer, 700, BillingMode.POSTPAID)
    assert recalled_lease_ids(GATEWAY, database_id()) == (lease.lease_id,)
    refused = ask_for(limit_budget_id(customer.id), 1, now=datetime.now(UTC))
    assert refused.code == "organization_spend_limit_exceeded"


def test_expired_credit_is_recalled_from_later_leases(customer):
    """1,000 expire; of the lease granted after the expiry 400 were leased, and nothing is left."""
    give_credit(customer, 1_000, expires_at=NOW)
    lease = ask_for(customer.balance, 400, now=NOW + MINUTE)
    expire_grants(now=NOW + 2 * MINUTE)
    assert recalled_lease_ids(GATEWAY, database_id()) == (lease.lease_id,)


def test_reversed_credit_is_recalled(customer):
    grant = give_credit(customer, 1_000)
    lease = ask_for(customer.balance, 400)
    reverse_grant(actor=OPERATOR, grant_id=grant.id, reason="mistake", now=NOW)
    assert poll().recalls == (lease.lease_id,)
    assert isinstance(ask_for(customer.balance, 1), LeaseDenial)


# Charges


def test_settling_moves_money_from_pending_to_posted(customer, price):
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.balance, 400_000)
    ingest(make_batch([with_lease(make_event(customer, price), lease.lease_id)]), now=NOW)
    balance = budget(customer.balance, NOW)
    assert (balance.posted_nanos, balance.pending_nanos) == (132_000, 268_000)
    assert left(customer) == 600_000
    give_back(lease, 132_000, closed=True)
    assert left(customer) == 1_000_000 - 132_000


def test_a_lease_that_took_more_than_it_was_granted_is_told(customer):
    give_credit(customer, 1_000)
    row = row_of(ask_for(customer.balance, 600))
    assert charge({row.budget_id: 600}, {row.pk: 600}) == (set(), set())
    assert charge({row.budget_id: 1}, {row.pk: 1}) == ({row.pk}, set())
    assert differences() == []


def test_a_charge_to_no_budget_is_an_error_and_not_lost(customer):
    give_credit(customer, 1_000)
    row = row_of(ask_for(customer.balance, 600))
    for charges in ({row.budget_id: 1, 10**15: 1}, {}):
        with pytest.raises(DatabaseError, match="charges"), connection.cursor() as cursor:
            cursor.execute("SAVEPOINT here")
            try:
                charge(charges, {row.pk: 1})
            finally:
                cursor.execute("ROLLBACK TO here")
    assert differences() == []


def test_a_lease_keeps_its_terms(customer):
    give_credit(customer, 1_000)
    row = row_of(ask_for(customer.balance, 600))
    (terms,) = lease_terms([row.pk, 10**15]).values()
    assert terms == (row.pk, customer.id, GATEWAY, row.budget_id)


# Leases without a gateway


def test_an_abandoned_lease_is_voided_after_a_day_and_noted(customer):
    give_credit(customer, 1_000)
    ask_for(customer.balance, 600)
    end = NOW + LEASE_DURATION
    assert void_abandoned_leases(now=end + timedelta(hours=23)) == 0
    assert void_abandoned_leases(now=end + timedelta(hours=24)) == 1
    assert void_abandoned_leases(now=end + timedelta(hours=24)) == 0
    assert left(customer) == 1_000
    assert AuditEvent.objects.get(action="lease.void").details["held_nanos"] == 600


def test_a_journal_that_comes_after_the_void_is_still_booked(customer, price):
    give_credit(customer, 1_000_000)
    lease = ask_for(customer.balance, 400_000)
    void_abandoned_leases(now=NOW + timedelta(days=2))
    ingest(make_batch([with_lease(make_event(customer, price), lease.lease_id)]), now=NOW)
    assert row_of(lease).settled_nanos == 132_000
    assert left(customer) == 1_000_000 - 132_000
    assert differences() == []


def test_the_leases_of_another_database_are_over(customer):
    """As after a restore: the rows are of the lineage before, and no name of today means them."""
    give_credit(customer, 1_000)
    old = LeaseAsk("ask_1", customer.balance, 600, 600, NOW)
    (lease,) = grant_leases(gateway_id=GATEWAY, asks=[old], lineage="before", now=NOW)
    reply = poll(old, returns=(LeaseReturn(lease.lease_id, 0, True),))
    assert reply.returned == (lease.lease_id,)
    assert reply.answers[0].granted_nanos == 0
    assert left(customer) == 400
    assert void_abandoned_leases(now=NOW) == 1
    assert left(customer) == 1_000


def test_an_operator_releases_a_lease_whose_journal_is_lost(customer):
    give_credit(customer, 1_000)
    row = row_of(ask_for(customer.balance, 990))
    release_lease(actor=OPERATOR, lease_id=row.pk, reason="disk lost", now=NOW)
    assert left(customer) == 1_000
    assert AuditEvent.objects.get(action="lease.void").details["reason"] == "disk lost"
    with pytest.raises(Conflict):
        release_lease(actor=OPERATOR, lease_id=row.pk, reason="again", now=NOW)


def test_an_operator_acknowledges_an_overrun(customer):
    give_credit(customer, 1_000)
    row = row_of(ask_for(customer.balance, 600))
    looked: Any = {"actor": OPERATOR, "lease_id": row.pk, "reason": "seen", "now": NOW}
    with pytest.raises(Conflict):
        acknowledge_overrun(**looked)
    charge({row.budget_id: 700}, {row.pk: 700})
    acknowledge_overrun(**looked)
    row.refresh_from_db()
    assert row.overrun_seen_at == NOW


def test_only_operators_release_and_acknowledge(customer):
    give_credit(customer, 1_000)
    row = row_of(ask_for(customer.balance, 600))
    stranger = Actor.for_user(User.objects.create_user("stranger@acme.test"))
    for verb in (release_lease, acknowledge_overrun):
        with pytest.raises(NotPermitted):
            verb(actor=stranger, lease_id=row.pk, reason="mine", now=NOW)


# Limits


def test_a_postpaid_organization_spends_up_to_its_monthly_limit(customer, price):
    Organization.objects.filter(id=customer.id).update(
        spend_limit_nanos=200_000, billing_mode=BillingMode.POSTPAID
    )
    name = limit_budget_id(customer.id)
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert budget(name, NOW).available_nanos == 68_000
    assert ask_for(name, 132_000).code == "organization_spend_limit_exceeded"
    assert isinstance(ask_for(name, 132_000, now=NOW + timedelta(days=10)), LeaseGrant)
    assert ask_for(customer.balance, DEFAULT_CREDIT_LIMIT_NANOS).code == "credit_balance_exhausted"
    left = DEFAULT_CREDIT_LIMIT_NANOS - 132_000
    assert isinstance(ask_for(customer.balance, left), LeaseGrant)


@pytest.mark.parametrize(
    ("kind", "code"),
    [("project", "project_spend_limit_exceeded"), ("key", "key_budget_exceeded")],
)
def test_projects_and_keys_have_monthly_limits_of_their_own(customer, price, kind, code):
    limited = getattr(customer, kind)
    limited.spend_limit_nanos = 200_000
    limited.save()
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    assert budget(limit_budget_id(limited.id), NOW).available_nanos == 68_000
    assert ask_for(limit_budget_id(limited.id), 132_000).code == code


def test_a_budget_without_a_limit_grants_what_is_wished(customer):
    assert ask_for(limit_budget_id(customer.key.id), 5, 7).granted_nanos == 7


def test_each_part_of_a_request_is_answered_in_its_order(customer, outsider):
    give_credit(customer, 100)
    asks = [LeaseAsk(new_id(), one.balance, 10, 10, NOW) for one in (outsider, customer)]
    assert [type(one) for one in poll(*asks).answers] == [LeaseDenial, LeaseGrant]


def fill(count: int) -> tuple[list[Customer], list[LeaseGrant]]:
    """Return as many customers with credit, and five leases of each."""
    customers = [Customer(one, None, None) for one in make_organizations(count)]  # type: ignore[arg-type]
    leases = []
    for one in customers:
        give_credit(one, 1_000)
    for _ in range(5):
        asks = [LeaseAsk(new_id(), one.balance, 10, 10, NOW) for one in customers]
        leases += poll(*asks).answers
    return customers, leases


def make_organizations(count: int) -> list[Organization]:
    return Organization.objects.bulk_create(
        Organization(name=f"organization {number}") for number in range(count)
    )


def statements_of_a_poll(count: int, counted: Any) -> int:
    customers, leases = fill(count)
    asks = [LeaseAsk(new_id(), one.balance, 10, 10, NOW) for one in customers]
    returns = tuple(LeaseReturn(lease.lease_id, 0, True) for lease in leases)
    with counted as seen:
        reply = poll(*asks, returns=returns)
    assert {type(one) for one in reply.answers} == {LeaseGrant}
    assert len(reply.returned) == len(leases)
    return len(seen)


def test_a_poll_takes_as_many_statements_for_hundreds_as_for_one(django_assert_max_num_queries):
    few, many = (
        statements_of_a_poll(count, django_assert_max_num_queries(20)) for count in (2, 60)
    )
    assert few == many
    assert differences() == []


def test_a_lease_is_forgotten_weeks_after_it_closed_and_not_before(customer):
    give_credit(customer, 1_000_000)
    old, kept, held = (ask_for(customer.balance, 1_000) for _ in range(3))
    for lease, at in ((old, NOW), (kept, NOW + timedelta(days=1))):
        back = [LeaseReturn(lease.lease_id, 0, closed=True)]
        take_back(gateway_id=GATEWAY, returns=back, lineage=database_id(), now=at)
    assert forget_leases(now=NOW + timedelta(days=14)) == 0
    assert forget_leases(now=NOW + timedelta(days=14, seconds=1)) == 1
    assert {one.wire_id for one in Lease.objects.all()} == {kept.lease_id, held.lease_id}
