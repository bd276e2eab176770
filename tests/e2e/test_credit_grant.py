"""Spent credit refuses, for good; the operator's grant admits again."""

import httpx
import pytest

from tests.fixtures.operator import at_the_admin
from tests.fixtures.stack import Stack
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

FEW_NANOS = 500_000
EMAIL = "spender@new.example"
IN_FORCE_SECONDS_MAX = 60.0


def ask(stack: Stack, api_key: str) -> httpx.Response:
    return httpx.post(
        f"{stack.api_base}/chat/completions",
        headers={"authorization": f"Bearer {api_key}"},
        json={
            "model": stack.model,
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 20,
        },
        timeout=60,
    )


def spend_all(stack: Stack, api_key: str) -> httpx.Response:
    """Ask until the gateway refuses; return the refusal."""
    for _ in range(1_000):
        reply = ask(stack, api_key)
        if reply.status_code != 200:
            return reply
    raise AssertionError("a thousand requests later the credit has not run out")


def test_a_grant_admits_what_spent_credit_refused(simulated_stack: Stack) -> None:
    stack = simulated_stack
    api_key = stack.new_tenant(EMAIL, credit_nanos=FEW_NANOS)["api_key"]
    wait_until(
        lambda: ask(stack, api_key).status_code == 200,
        seconds=IN_FORCE_SECONDS_MAX,
        what="the key works",
    )

    refused = spend_all(stack, api_key)
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("insufficient_quota", "credit_balance_exhausted")
    assert refused.headers["x-should-retry"] == "false"

    with at_the_admin(stack) as operator:
        operator.open_grant(organization=EMAIL, dollars="1")
        operator.send_grant()
        wait_until(
            lambda: ask(stack, api_key).status_code == 200,
            seconds=IN_FORCE_SECONDS_MAX,
            what="the grant admits a request",
        )
