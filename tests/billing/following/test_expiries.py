"""Usage that is followed beside a grant draws it all the same: neither misses the other."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, transaction

from billing.credit.models import UnpostedUsage
from billing.credit.services.grants import expire_grants
from billing.following.follow import step
from billing.ledger.selectors import owed_by
from billing.metering.ingest import ingest
from tests.fixtures.database import superuser_url
from tests.fixtures.following import wait_until_quiet
from tests.fixtures.usage import NOW, give_credit, make_batch, make_event
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
ENDS = NOW + timedelta(hours=1)
# Other workers' databases are on the same server.
WAITING = """
SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
WHERE locktype = 'advisory' AND NOT granted AND datname = %s
"""


def beside(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Do the first; before it commits, let the second begin, which has to wait for it."""

    with ThreadPoolExecutor(max_workers=1) as pool:
        with transaction.atomic():
            first()
            waiting: Future[None] = pool.submit(alone, second)
            wait_until(_somebody_waits, seconds=60, what="a lock waited for")
        waiting.result(timeout=60)


def alone(work: Callable[[], object]) -> None:
    """Do the work in a thread of its own, whose connection ends with it."""
    try:
        work()
    finally:
        connection.close()


def _somebody_waits() -> bool:
    with psycopg.connect(superuser_url(), autocommit=True) as other:
        return other.execute(WAITING, [connection.settings_dict["NAME"]]).fetchone() == (1,)


@pytest.fixture
def follow(customer, price):
    """Take usage in that no follower has read, and return what reads it."""
    event = make_event(customer, price)
    ingest(make_batch([event]), now=NOW)
    wait_until_quiet()
    return lambda: step("postings", now=NOW)


def test_a_grant_beside_a_page_posts_its_usage(customer, follow):
    beside(follow, lambda: give_credit(customer, 10**9, expires_at=ENDS))
    assert not UnpostedUsage.objects.exists()
    assert owed_by([customer.id]) == {}


def test_a_page_beside_a_grant_is_told_apart_by_its_expiry(customer, follow):
    beside(lambda: give_credit(customer, 10**9, expires_at=ENDS), follow)
    assert UnpostedUsage.objects.get().received_before == ENDS
    expire_grants(now=ENDS + timedelta(days=1))
    assert owed_by([customer.id]) == {}


def test_credit_that_never_expires_waits_for_no_page(customer, follow):
    with transaction.atomic():
        follow()
        with ThreadPoolExecutor(max_workers=1) as pool:
            pool.submit(alone, lambda: give_credit(customer, 10**9)).result(timeout=60)
