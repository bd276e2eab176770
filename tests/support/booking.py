"""When money is in the books of a running platform."""

import time

import psycopg

from serving.contract.money import CENT_NANOS
from tests.support.stack import Stack

EVERY_SECONDS = 0.01
BOOKED = "SELECT count(*) FROM credit_payment WHERE amount_nanos = %s"


def booked_at(stack: Stack, cents: int, *, seconds: float) -> float:
    """Wait until a payment of so many cents is committed; return the moment (of the monotonic
    clock), late by EVERY_SECONDS at most."""
    deadline = time.monotonic() + seconds
    with psycopg.connect(stack.superuser_url, autocommit=True) as root:
        while root.execute(BOOKED, [cents * CENT_NANOS]).fetchone() == (0,):
            assert time.monotonic() < deadline, f"no payment of {cents} cents was booked"
            time.sleep(EVERY_SECONDS)
    return time.monotonic()
