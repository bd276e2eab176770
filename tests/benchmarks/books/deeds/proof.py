"""What must be true of the books before a figure about them is printed. Runs in a worker."""

import time

from django.db import connection

from billing.following.integrity import check_all
from billing.following.models import Seal
from billing.metering.models import Day

COUNT = "SELECT count(*) FROM metering_usage_event"


def count_events() -> int:
    """Return how many events are there."""
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute(COUNT)
        found: int = cursor.fetchone()[0]
    return found


def failed_checks() -> tuple[list[str], int]:
    """Return the checks of the books that fail, and how many hold."""
    findings = check_all()
    failed = [f"{one.sentence}: {one.shown}" for one in findings if not one.holds]
    return failed, len(findings) - len(failed)


def timed_checks() -> tuple[float, list[str]]:
    """Return how many seconds all checks take, and those that fail."""
    began = time.perf_counter()
    failed, _ = failed_checks()
    return time.perf_counter() - began, failed


def count_past() -> tuple[int, int, int]:
    """Return how many events, sealed days and seals there are."""
    sealed = Day.objects.filter(sealed_at__isnull=False).count()
    return count_events(), sealed, Seal.objects.count()
