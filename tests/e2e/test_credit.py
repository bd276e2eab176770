"""Spent credit refuses, for good; the operator's grant admits again at once."""

import time

import httpx
import pytest

from tests.fixtures.load import wait_until
from tests.fixtures.operator import at_the_admin
from tests.fixtures.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.full]

FEW_NANOS = 500_000
EMAIL = "spender@house.example"
WITHIN_SECONDS = 2.0


def ask(stack: Stack, api_key: str) -> httpx.Response:
    return httpx.post(
        f"{stack.api_base}/chat/completions",
        headers={"authorization": f"Bearer {api_key}"},
        json={
            "model": stack.model,
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 20,
        },
        timeout=10,
    )


def spend_all(stack: Stack, api_key: str) -> httpx.Response:
    """Ask until the gateway refuses; return the refusal."""
    deadline = time.monotonic() + 30
    while (reply := ask(stack, api_key)).status_code == 200:
        assert time.monotonic() < deadline, "the credit never ran out"
    return reply


def test_a_grant_admits_within_two_seconds_what_spent_credit_refused(
    simulated_stack: Stack,
) -> None:
    stack = simulated_stack
    api_key = stack.new_tenant(EMAIL, credit_nanos=FEW_NANOS)["api_key"]
    wait_until(
        lambda: ask(stack, api_key).status_code == 200, timeout_seconds=5, what="the key works"
    )

    refused = spend_all(stack, api_key)
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("insufficient_quota", "credit_balance_exhausted")
    assert refused.headers["x-should-retry"] == "false"

    with at_the_admin(stack) as operator:
        operator.open_grant(organization=EMAIL, dollars="1")
        sent_at = time.monotonic()
        operator.send_grant()
        wait_until(
            lambda: ask(stack, api_key).status_code == 200,
            timeout_seconds=WITHIN_SECONDS - (time.monotonic() - sent_at),
            what="the grant admits a request",
            every_seconds=0.05,
        )
        assert time.monotonic() - sent_at <= WITHIN_SECONDS
