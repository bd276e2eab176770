"""Health is progress."""

from dataclasses import replace

from serving.engine.probe import EngineHealth
from serving.fleet.lifecycle import ProgressMonitor


def pulse() -> ProgressMonitor:
    return ProgressMonitor(stuck_seconds=10, idle_probe_seconds=12, now=0)


def vitals(
    *, running: int = 0, waiting: int = 0, made: int = 0, cache: float = 0.0
) -> EngineHealth:
    return EngineHealth(running, waiting, 0, made, cache)


def test_a_replica_that_makes_tokens_is_healthy_however_long_it_works() -> None:
    judge = pulse()
    for now in range(100):
        judge.record_health(vitals(running=3, made=now), now)
        assert judge.problem(now) is None


def test_requests_without_a_token_for_ten_seconds_are_trouble() -> None:
    judge = pulse()
    for now in range(11):
        judge.record_health(vitals(running=1, made=5), now)
    assert judge.problem(9) is None
    assert judge.problem(10) == "requests run, but no token was made for 10 s"


def test_an_engine_that_computes_is_at_work_though_not_for_ever() -> None:
    judge = pulse()
    judge.record_health(vitals(running=1, made=5), 0)
    for now in range(1, 61):
        assert judge.problem(now - 1) is None
        judge.record_cpu(0.9 * now)
        judge.record_health(vitals(running=1, made=5), now)
    assert judge.problem(60) == "requests run, but no token was made for 60 s"


def test_an_engine_that_computes_little_is_stuck() -> None:
    judge = pulse()
    judge.record_cpu(100)
    judge.record_health(vitals(running=1, made=5), 0)
    judge.record_cpu(104)
    judge.record_health(vitals(running=1, made=5), 10)
    assert judge.problem(10) is not None


def test_an_idle_engine_that_computes_may_leave_a_probe_unanswered_though_not_for_ever() -> None:
    judge = pulse()
    judge.record_health(vitals(), 0)
    assert judge.excuses(12, 9.5, 22)
    assert not judge.excuses(12, 0.5, 22)
    assert not judge.excuses(12, 0, 12)
    assert not judge.excuses(62, 9.5, 72)


def test_waiting_requests_count_as_work_too() -> None:
    judge = pulse()
    for now in range(11):
        judge.record_health(vitals(waiting=1), now)
    assert judge.problem(10) is not None


def test_a_long_prefill_shows_in_the_cache_and_is_progress() -> None:
    judge = pulse()
    for now in range(30):
        judge.record_health(vitals(running=1, cache=now / 100), now)
        assert judge.problem(now) is None


def test_an_idle_replica_is_no_trouble_but_wants_a_probe() -> None:
    judge = pulse()
    judge.record_health(vitals(), 0)
    judge.record_health(vitals(), 12)
    assert judge.problem(12) is None
    assert judge.wants_probe(12)
    judge.record_token(12)
    assert not judge.wants_probe(23)


def test_a_busy_replica_wants_no_probe() -> None:
    judge = pulse()
    judge.record_health(vitals(running=1, made=1), 0)
    assert not judge.wants_probe(50)


def test_silence_is_trouble_and_any_answer_ends_it() -> None:
    judge = pulse()
    assert judge.problem(10) == "no answer for 10 s"
    judge.record_response(10)
    assert judge.problem(19) is None


def test_an_engine_that_only_compiles_grammars_is_busy_and_not_stuck_for_a_while() -> None:
    judge = pulse()
    for now in range(31):
        judge.record_health(replace(vitals(waiting=2), deferred=2), now)
    assert judge.problem(29) is None
    assert judge.problem(30) is not None


def test_one_that_waits_for_room_beside_it_is_stuck() -> None:
    judge = pulse()
    for now in range(11):
        judge.record_health(replace(vitals(waiting=3), deferred=2), now)
    assert judge.problem(10) is not None
