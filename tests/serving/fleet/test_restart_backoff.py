"""Restarts pause longer each time and are capped in number."""

import pytest

from serving.fleet.launcher import STARTS_MAX, WINDOW_SECONDS, RestartBackoff


def restarts() -> RestartBackoff:
    return RestartBackoff(first_seconds=1, max_seconds=60)


def test_the_first_start_does_not_wait() -> None:
    assert restarts().pause_seconds(0) == 0


@pytest.mark.parametrize(("failures", "pause"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60)])
def test_each_failure_in_a_row_doubles_the_pause_up_to_the_longest(
    failures: int, pause: int
) -> None:
    record = restarts()
    for _ in range(failures):
        record.record_failure(100, was_steady=False)
    assert record.pause_seconds(100) == pause
    assert record.pause_seconds(100 + pause) == 0


def test_a_steady_replica_starts_the_count_anew() -> None:
    record = restarts()
    for _ in range(6):
        record.record_failure(0, was_steady=False)
    record.record_failure(1_000, was_steady=True)
    assert record.pause_seconds(1_000) == 1


def test_no_more_than_so_many_restarts_fit_in_the_window() -> None:
    record = restarts()
    for now in range(STARTS_MAX):
        record.record_failure(now, was_steady=False)
        record.record_start(now)
    assert record.pause_seconds(100) == WINDOW_SECONDS - 100
    record.record_failure(100, was_steady=True)
    assert record.pause_seconds(100) == 1


def test_a_changed_deployment_is_forgiven() -> None:
    record = restarts()
    record.record_failure(0, was_steady=False)
    record.reset()
    assert record.pause_seconds(0) == 0
