"""What recurs is scheduled under names that exist, and may run twice."""

import pytest

from billing.credit.selectors import balance_nanos
from billing.credit.tasks import close_grants, void_leases
from control.celery import app, beat_schedule
from tests.fixtures.books import differences
from tests.fixtures.usage import NOW, ask_for, give_credit

pytestmark = [pytest.mark.integration, pytest.mark.django_db]


def test_every_scheduled_task_exists():
    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in beat_schedule().values()}
    mine = {"credit.void_abandoned_leases", "credit.expire_grants", "metering.make_partitions"}
    assert mine <= scheduled <= set(app.tasks)


def test_tasks_run_twice_without_harm(customer):
    give_credit(customer, 500, expires_at=NOW)
    ask_for(customer.balance, 10)
    for _ in range(2):
        void_leases()
        close_grants()
    assert balance_nanos(customer.id) == 0
    assert differences() == []
