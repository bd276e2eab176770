"""A close that is killed between any two statements, or runs beside another one: each organization
is invoiced once, and no number is left out."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, connections

from billing.invoicing.models import Invoice, LegalEntity
from billing.invoicing.services.closing import preview_month
from tests.fixtures.corpus import quarter
from tests.fixtures.invoicing import (
    AFTER,
    MILLION_CENTS,
    OCTOBER,
    close,
    finish_month,
    is_finished,
    october,
    sound,
    use_cents,
)
from tests.fixtures.usage import Customer, give_credit, make_customer, make_price

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
CENT = 10_000_000
STATEMENTS = 45
"""More than one organization's close has."""
PARTS = 4
"""Each part kills at every fourth statement."""


class Killed(BaseException):
    """The process is gone: nothing may catch it and go on."""


@pytest.fixture
def price():
    return make_price(at=october(1), **MILLION_CENTS)


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """Kill the session when its statement of that number is about to run."""
    seen = 0

    def count(execute: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen > number:
            raise Killed
        return execute(*arguments)

    with connection.execute_wrapper(count):
        yield


def customers(price: Any, count: int) -> list[Customer]:
    """Return customers who each owe 2.00 of 3.00 used."""
    made = [make_customer(f"Customer {number}") for number in range(count)]
    for number, customer in enumerate(made):
        give_credit(customer, 100 * CENT, now=october(1))
        use_cents(customer, price, 300, october(30, minute=number % 60))
    finish_month()
    return made


def numbers() -> list[int]:
    return sorted(Invoice.objects.values_list("sequence", flat=True))


@pytest.mark.parametrize("part", quarter(range(PARTS)))
def test_killed_between_any_two_statements_each_is_invoiced_once(price, part):
    numbers_of_statements = range(part, STATEMENTS, PARTS)
    made = customers(price, len(numbers_of_statements))
    killed = 0
    for number, customer in zip(numbers_of_statements, made, strict=True):
        try:
            with killed_at(number):
                close(organization_id=customer.id)
        except Killed:
            killed += 1
            connection.close()
    assert killed > len(made) // 2
    assert close().is_finished
    assert numbers() == list(range(1, len(made) + 1))
    assert LegalEntity.objects.get().next_invoice == len(made) + 1
    assert set(Invoice.objects.values_list("organization_id", "total_cents")) == {
        (customer.id, 200) for customer in made
    }
    assert is_finished()
    assert sound()


def test_two_closes_at_once_make_each_invoice_once(price):
    made = customers(price, 12)
    barrier = Barrier(3)

    def run(_: int) -> int:
        try:
            barrier.wait()
            return len(close().failures)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(run, range(3))) == [0, 0, 0]
    assert numbers() == list(range(1, len(made) + 1))
    assert is_finished()
    assert sound()


def test_a_close_in_mid_traffic_takes_its_own_month_only(price):
    (customer,) = customers(price, 1)
    barrier = Barrier(2)

    def traffic() -> None:
        try:
            barrier.wait()
            for minute in range(20):
                use_cents(customer, price, 1, AFTER.replace(minute=minute))
        finally:
            connections.close_all()

    def closing() -> None:
        try:
            barrier.wait()
            close()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as threads:
        for running in [threads.submit(traffic), threads.submit(closing)]:
            running.result()
    assert Invoice.objects.get().usage_nanos == 300 * CENT
    finish_month()
    assert sound()


def test_a_dry_run_says_the_same_and_changes_nothing(price):
    made = customers(price, 2)
    found = list(preview_month(period=OCTOBER, now=AFTER))
    assert [one.totals.total_cents for one in found if one.totals] == [200, 200]
    assert sorted(one.organization_id for one in found) == sorted(one.id for one in made)
    assert not Invoice.objects.exists()
    assert LegalEntity.objects.get().next_invoice == 1
    assert len(close().invoices) == 2


def test_a_run_that_must_stop_says_how_many_are_left(price):
    customers(price, 3)
    allowed = iter([True, True, False])
    outcome = close(goes_on=lambda: next(allowed))
    assert (len(outcome.invoices), outcome.left_count, outcome.is_finished) == (2, 1, False)
    assert not is_finished()
    progress: list[tuple[int, int]] = []
    close(progress=lambda done, all_: progress.append((done, all_)))
    assert progress == [(1, 1)]
    assert is_finished()
