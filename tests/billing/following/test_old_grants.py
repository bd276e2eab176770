"""Usage is told apart by the expiries after it, and posted, without a look at older grants."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.credit.models import GrantKind, UnpostedUsage
from billing.credit.selectors import credit_sources, drawable_grants
from billing.following.follow import step
from billing.following.postings import ADD
from billing.ledger.causes import CREDIT_RULES
from billing.ledger.post import post, transfer
from billing.metering.ingest import ingest
from tests.fixtures.following import wait_until_quiet
from tests.fixtures.usage import NOW, give_credit, make_batch, make_event

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]

OLD = 3_000
READ_MAX = 10
TABLES = ("credit_grant", "ledger_account")
HOUR = timedelta(hours=1)
OLD_GRANTS = """
WITH account AS (
    INSERT INTO ledger_account (organization_id, kind, owner_id, balance_nanos)
    SELECT %(owner)s, 'promotional_credit', 'old ' || n, 0 FROM generate_series(1, %(count)s) AS n
    RETURNING id, owner_id
)
INSERT INTO credit_grant (id, organization_id, kind, amount_nanos, account_id, expires_at,
    expired_nanos, closed_at, has_remaining, idempotency_key, reason, granted_by, granted_at)
SELECT owner_id, %(owner)s, 'promotional', 1000, id, CASE WHEN id %% 2 = 0 THEN %(ended)s END,
    (id %% 2 = 0)::int * 400, CASE WHEN id %% 2 = 0 THEN %(ended)s END, false, owner_id, '', '',
    %(ended)s
FROM account
"""
"""Half of them used up, the other half expired with something left."""


@pytest.fixture
def old_grants(customer, superuser_connection):
    """Give many old grants and three that may be drawn, two of which expire."""
    values = {"owner": customer.id, "count": OLD, "ended": NOW - timedelta(days=60)}
    superuser_connection.execute(OLD_GRANTS, values)
    for expires_at in (NOW + HOUR, NOW + 2 * HOUR, None):
        give_credit(customer, 10**9, kind=GrantKind.PROMOTIONAL, expires_at=expires_at)
    # What the tests before deleted is in the indexes until then, and is read as a row.
    superuser_connection.execute("VACUUM (ANALYZE) credit_grant, ledger_account")


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes_of(part)


def rows_read(plan: dict[str, Any]) -> int:
    """Return how many rows a plan read of grants and their accounts, in tables and indexes."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes_of(plan)
        if node.get("Relation Name") in TABLES or node["Node Type"] == "Bitmap Index Scan"
    )


def test_a_page_is_added_without_a_look_at_old_grants(old_grants, customer, price):
    ingest(make_batch([make_event(customer, price)]), now=NOW)
    wait_until_quiet()
    plans: list[dict[str, Any]] = []

    def explain(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if "credit_unposted_usage" not in sql:
            return execute(sql, parameters, many, context)
        done = execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, parameters, many, context)
        plans.append(context["cursor"].fetchone()[0][0]["Plan"])
        return done

    with connection.execute_wrapper(explain):
        step("postings", now=NOW)
    assert UnpostedUsage.objects.get().received_before == NOW + HOUR
    (plan,) = plans
    assert any(node.get("Relation Name") == "credit_grant" for node in nodes_of(plan))
    assert rows_read(plan) <= READ_MAX


def test_usage_is_drawn_without_a_look_at_old_grants(old_grants, customer):
    drawable = drawable_grants([customer.id], valid_at=NOW)
    assert len(drawable) == 3
    plan = json.loads(drawable.explain(format="json", analyze=True))[0]["Plan"]
    assert any(node.get("Relation Name") == "credit_grant" for node in nodes_of(plan))
    assert rows_read(plan) <= READ_MAX


def test_a_grant_is_a_source_while_something_is_left_of_it(customer):
    """500 expire, 200 of them come back, and 100 expire again."""
    grant = give_credit(customer, 500, kind=GrantKind.PROMOTIONAL)
    rules = CREDIT_RULES[grant.kind]
    for rule, nanos, left in (
        (rules.expiry, 500, 0),
        (rules.expiry_reversal, 200, 200),
        (rules.expiry, 100, 100),
    ):
        legs = transfer(rule, nanos, grant.id)
        post(rule, organization_id=customer.id, legs=legs, grant=grant.id, now=NOW)
        grant.refresh_from_db()
        assert grant.has_remaining == (left > 0)
        found = credit_sources([customer.id], valid_at=NOW).get(customer.id, [])
        assert sum(one.remaining_nanos for one in found) == left


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ends=st.sets(st.integers(-20, 5), max_size=5),
    hours=st.lists(st.integers(-20, 0), min_size=1, max_size=8),
)
def test_usage_waits_for_the_soonest_expiry_after_it(customer, price, ends, hours):
    """Requests at an expiry, and between two."""
    expiries = sorted(NOW + end * HOUR for end in ends)
    events = [make_event(customer, price, received_at=NOW + hour * HOUR) for hour in hours]
    with transaction.atomic():
        for expires_at in expiries:
            give_credit(customer, 1000, expires_at=expires_at)
        ingest(make_batch(events), now=NOW)
        with connection.cursor() as cursor:
            cursor.execute(ADD.format(condition="true"))
        found = UnpostedUsage.objects.values_list("accounted_on", "received_before", "nanos")
        due: Counter[tuple[Any, datetime | None]] = Counter()
        for event in events:
            after = [end for end in expiries if end > event.received_at]
            due[event.received_at.date(), min(after, default=None)] += 132_000
        assert {(day, before): nanos for day, before, nanos in found} == due
        transaction.set_rollback(True)
