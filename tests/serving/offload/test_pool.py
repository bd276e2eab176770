"""Processes beside the loop: whoever harms one harms nobody else."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psutil
import pytest

from serving.offload.pool import OffloadPool, OffloadTimeout, TenantSemaphore
from serving.offload.process import PIECE_BYTES, WorkerDied, WorkerProcess
from tests.fixtures.waiting import eventually


@asynccontextmanager
async def open_bench(
    *, processes: int = 1, seconds_max: float = 60.0, wait_seconds_max: float = 60.0
) -> AsyncIterator[OffloadPool]:
    turns = TenantSemaphore(
        processes, waiting_max=8, waiting_of_one_max=3, wait_seconds_max=wait_seconds_max
    )
    bench = OffloadPool(("tests.fixtures.offload_worker",), turns, seconds_max=seconds_max)
    try:
        yield bench
    finally:
        await bench.close()


async def pid_of(bench: OffloadPool, organization_id: str = "org_b") -> int:
    async with bench.process(organization_id) as process:
        (message, pid), _ = await process.ask("hello")
    assert message == "hello"
    return int(pid)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 7, 5_000_000])
async def test_bytes_come_back_as_they_went(size: int) -> None:
    sent = os.urandom(size)
    async with open_bench() as bench, bench.process("org_a") as process:
        _, pieces = await process.ask("hello", [sent[:1_000], sent[1_000:]])
        assert b"".join(pieces) == sent
        assert max(map(len, pieces), default=0) <= PIECE_BYTES


async def test_a_process_is_kept_between_jobs() -> None:
    async with open_bench() as bench:
        assert await pid_of(bench, "org_a") == await pid_of(bench, "org_b")
        assert bench.lost_count == 0


@pytest.mark.parametrize(
    ("message", "error", "seconds_max"),
    [
        ("sleep", OffloadTimeout, 0.5),
        ("die", WorkerDied, 60.0),
        ("grow", WorkerDied, 60.0),
        ("break", WorkerDied, 60.0),
    ],
)
async def test_what_is_lost_is_replaced(
    monkeypatch: pytest.MonkeyPatch, message: str, error: type[Exception], seconds_max: float
) -> None:
    async with open_bench() as bench:
        first = await pid_of(bench)
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(bench, "_seconds_max", seconds_max)
            async with bench.process("org_a") as process:
                await process.ask(message, [b"a secret"])
        assert await pid_of(bench) != first
        assert bench.lost_count == 1
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)


async def test_nothing_of_a_request_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    secret = b"a secret"
    async with open_bench() as bench:
        with pytest.raises(WorkerDied):
            async with bench.process("org_a") as process:
                await process.ask("break", [secret])
    said = capfd.readouterr()
    assert "RuntimeError" in said.err
    assert secret.decode() not in said.out + said.err


async def test_an_error_of_ours_between_two_questions_loses_nothing() -> None:
    async with open_bench() as bench:
        first = await pid_of(bench)
        with pytest.raises(KeyError):
            async with bench.process("org_a") as process:
                await process.ask("hello")
                raise KeyError
        assert await pid_of(bench) == first


async def test_one_that_was_killed_while_idle_is_not_used() -> None:
    async with open_bench() as bench:
        first = await pid_of(bench)
        os.kill(first, 9)
        await eventually(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE)
        assert await pid_of(bench) != first


async def test_one_that_is_long_in_starting_is_the_next_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, begun, may_go_on = WorkerProcess.start, list[str](), asyncio.Event()

    async def start_late(module: Sequence[str]) -> WorkerProcess:
        begun.append(module[0])
        await may_go_on.wait()
        return await start(module)

    monkeypatch.setattr(WorkerProcess, "start", start_late)
    async with open_bench() as bench:
        monkeypatch.setattr("serving.offload.pool.START_WAIT_SECONDS", 0.05)
        for _ in range(3):
            with pytest.raises(WorkerDied):
                await pid_of(bench)
        leaving = asyncio.create_task(pid_of(bench))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert len(begun) == 1
        may_go_on.set()
        monkeypatch.setattr("serving.offload.pool.START_WAIT_SECONDS", 60.0)
        first = await pid_of(bench)
        assert await pid_of(bench) == first
        assert len(begun) == 1


async def test_one_that_starts_when_all_ends_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: WorkerProcess) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(WorkerProcess, "_answer", never)  # it starts for as long as this takes
    monkeypatch.setattr("serving.offload.pool.START_WAIT_SECONDS", 0.01)
    before = {child.pid for child in psutil.Process().children()}
    async with open_bench() as bench:
        with pytest.raises(WorkerDied):
            await pid_of(bench)
        [start] = bench._starting
    assert start.cancelled()
    await eventually(lambda: {child.pid for child in psutil.Process().children()} <= before)


async def test_a_machine_without_room_for_another_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("serving.offload.process.Popen", fail)
    async with open_bench() as bench:
        with pytest.raises(WorkerDied):
            await pid_of(bench)


async def test_who_leaves_in_the_middle_takes_the_process_along() -> None:
    async with open_bench() as bench:
        first = await pid_of(bench)

        is_asked = asyncio.Event()

        async def sleep() -> None:
            async with bench.process("org_a") as process:
                is_asked.set()
                await process.ask("sleep")

        task = asyncio.create_task(sleep())
        await is_asked.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await pid_of(bench) != first
