"""A standby takes the primary's place. Where it lacks nothing, the consumers of usage continue by
themselves; where it lacks usage, gateways send it again and an operator is told."""

import pytest

from tests.fixtures.database_copy import (
    EVENTS,
    LINEAGES,
    ROLLED_UP,
    SECONDS,
    Standby,
    ask,
    assert_integrity,
    rebuild_after_resend,
    value,
)
from tests.fixtures.stack import Stack
from tests.fixtures.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

LAG_EVENTS = 100


def test_a_standby_without_lag_continues_by_itself(replaceable_stack: Stack) -> None:
    ask(replaceable_stack, 20)
    standby = Standby(replaceable_stack)
    standby.start()
    ask(replaceable_stack, 20)
    wait_until(replaceable_stack.journal_is_empty, seconds=SECONDS, what="all usage is shipped")
    before = value(replaceable_stack, LINEAGES)
    standby.catch_up()
    replaceable_stack.supervisor.stop_process("postgres")
    standby.take_over()
    replaceable_stack.supervisor.start_process("postgres")
    ask(replaceable_stack, 5)
    wait_until(
        lambda: value(replaceable_stack, ROLLED_UP) == 45, seconds=SECONDS, what="usage is summed"
    )
    wait_until(
        lambda: value(replaceable_stack, LINEAGES) not in (None, before),
        seconds=SECONDS,
        what="all consumers know the database",
    )
    assert value(replaceable_stack, "SELECT sum(missing_count) FROM metering_resent_usage") == 0
    assert_integrity(replaceable_stack)


def test_a_standby_that_lags_gets_all_usage_and_waits_for_an_operator(
    replaceable_stack: Stack,
) -> None:
    ask(replaceable_stack, 20)
    standby = Standby(replaceable_stack)
    standby.start()
    standby.catch_up()
    standby.stop()
    ask(replaceable_stack, LAG_EVENTS)
    wait_until(replaceable_stack.journal_is_empty, seconds=SECONDS, what="all usage is shipped")
    assert value(replaceable_stack, EVENTS) == 20 + LAG_EVENTS
    replaceable_stack.supervisor.stop_process("postgres")
    standby.start()
    standby.take_over()
    replaceable_stack.supervisor.start_process("postgres")
    rebuild_after_resend(replaceable_stack, event_count=20 + LAG_EVENTS, missing_min=LAG_EVENTS)
    ask(replaceable_stack, 5)
    wait_until(
        lambda: value(replaceable_stack, ROLLED_UP) == 25 + LAG_EVENTS,
        seconds=SECONDS,
        what="usage is summed",
    )
    assert_integrity(replaceable_stack)
