"""How many usage events a second billing books: `python -m tests.benchmarks.ingest`.

A test database is made on the server of DATABASE_URL, or on the tests' own, and dropped
afterwards. Batches of 5,000 events of 50 organizations with four keys each come as the bytes that
gateways send; each event settles a lease. Decoding is part of the time.
"""

import argparse
import os
import platform
import random
import time
from typing import TYPE_CHECKING

import django
import psutil

from serving.contract.lease import Ask
from serving.contract.usage import EVENTS_MAX, UsageBatch

if TYPE_CHECKING:
    from tests.support.usage import Customer


def main() -> None:
    """Ingest batches into a database of their own and print events per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--events", type=int, default=EVENTS_MAX)
    arguments = parser.parse_args()
    django_ready()
    from django.db import connection

    name = connection.creation.create_test_db(verbosity=0)
    try:
        measure(arguments.batches, arguments.events)
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def django_ready() -> None:
    """Start the tests' PostgreSQL where none was given, and Django on it."""
    import tests.support.environment  # noqa: F401
    from tests.support import postgres

    postgres.ensure_running()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.support.settings")
    django.setup()


def measure(batch_count: int, event_count: int) -> None:
    """Print the rate of each batch and of all but the first, which warms up."""
    from django.utils import timezone

    from billing.metering.ingest import ingest
    from billing.metering.integrity import check_all

    batches = make_batches(batch_count, event_count)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; {versions()}")
    seconds = []
    cpu_began = cpu_seconds()
    for batch in batches:
        began = time.perf_counter()
        receipt = ingest(batch, now=timezone.now())
        seconds.append(time.perf_counter() - began)
        assert receipt.accepted == event_count, receipt
        print(f"{event_count} events in {seconds[-1]:.3f} s = {event_count / seconds[-1]:,.0f}/s")
    rate = event_count * (batch_count - 1) / sum(seconds[1:])
    print(f"{rate:,.0f} events/s over {batch_count - 1} batches after the first")
    used = [after - before for after, before in zip(cpu_seconds(), cpu_began, strict=True)]
    share = [1e6 * one / (event_count * batch_count) for one in used]
    load = os.getloadavg()[0]
    print(f"CPU per event: {share[0]:.0f} µs Python, {share[1]:.0f} µs PostgreSQL; load {load:.1f}")
    assert all(finding.holds for finding in check_all())


def make_batches(batch_count: int, event_count: int) -> list[UsageBatch]:
    """Return batches of events by 50 organizations with leases that cover them."""
    from django.utils import timezone

    from billing.credit.models import GrantKind
    from billing.credit.services.grants import grant_credit
    from billing.credit.services.leases import grant_lease
    from control.actor import system
    from tests.support.usage import (
        GATEWAY,
        make_batch,
        make_customer,
        make_event,
        make_price,
        with_lease,
    )

    rng, now, price = random.Random(7), timezone.now(), make_price(at=timezone.now())
    callers = []
    for number in range(50):
        customer = make_customer(f"organization {number}")
        grant_credit(
            organization_id=customer.id, kind=GrantKind.PREPAID, amount_nanos=10**14,
            idempotency_key="bench", actor=system("bench"), reason="bench", now=now,
        )  # fmt: skip
        ask = Ask(f"ask_{number}", customer.id, 10**12, 10**12)
        lease = grant_lease(gateway_id=GATEWAY, ask=ask, now=now)
        callers += [(one, lease.lease_id) for one in (customer, *more_keys(customer))]
    return [
        make_batch(
            with_lease(make_event(one, price, received_at=now), lease_id)
            for one, lease_id in rng.choices(callers, k=event_count)
        )
        for _ in range(batch_count)
    ]


def more_keys(customer: "Customer") -> "list[Customer]":
    """Return the customer with each of three other keys."""
    from tests.support.usage import add_key

    return [add_key(customer) for _ in range(3)]


def cpu_seconds() -> tuple[float, float]:
    """Return what this process and its PostgreSQL backend have used; 0 for a server elsewhere."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    if not psutil.pid_exists(pid):
        return time.process_time(), 0.0
    times = psutil.Process(pid).cpu_times()
    return time.process_time(), times.user + times.system


def versions() -> str:
    """Return what is measured on, with the settings that matter to durability."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT version(), current_setting('fsync')")
        version, fsync = cursor.fetchone()
        cursor.execute("SHOW synchronous_commit")
        commit = cursor.fetchone()[0]
    short = " ".join(version.split()[:2])
    return f"Python {platform.python_version()}, {short}, fsync={fsync}, commit={commit}"


if __name__ == "__main__":
    main()
