"""The worker: a task that never ends is ended, and is in nobody's way meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kombu import Connection

from control.celery import app
from control.worker import QUEUES, main
from infra.local.django import scheduler_arguments
from tests.fixtures.redis_server import RedisServer, running_redis
from tests.fixtures.waiting import wait_until

BOOKS = {"credit", "following", "invoicing", "metering"}
WORKER = """
import sys, time
import django
django.setup()
from control import worker
from control.celery import app

folder = sys.argv[1]

def write(name):
    with open(f"{folder}/{name}", "a") as file:
        file.write("x")

@app.task(name="stuck", soft_time_limit=0.5, time_limit=6)
def stuck(name):
    while True:
        try:
            write(name)
            time.sleep(3600)
        except Exception:
            write(f"{name} was told")

@app.task(name="quick")
def quick(name):
    write(name)

@app.task(name="counting")
def counting(name):
    return 3

@app.task(name="failing")
def failing(name):
    raise ValueError(name)

for name in worker.QUEUES:
    worker.QUEUES[name] = 1
sys.exit(worker.main(sys.argv[2:]))
"""


def test_every_task_has_a_queue_that_somebody_works_at() -> None:
    app.loader.import_default_modules()
    ours = {name for name in app.tasks if not name.startswith("celery.")}
    queue_of = {name: app.amqp.router.route({}, name)["queue"].name for name in ours}
    assert set(queue_of.values()) == set(QUEUES)
    assert {name for name in ours if name.startswith(("outbox.",))} == {
        name for name, queue in queue_of.items() if queue == "outbox"
    }
    in_books = {name.partition(".")[0] for name, queue in queue_of.items() if queue == "books"}
    assert in_books == BOOKS
    assert (
        queue_of["data_requests.run_pending"]
        == queue_of["following.check_integrity"]
        == "long_jobs"
    )
    assert queue_of["payments.sync_open"] == "general"


def test_a_queue_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bookz"]) == 2
    wanted = "penstock run worker: 'bookz' is no queue; wanted books, general, outbox, long_jobs\n"
    assert capsys.readouterr().err == wanted


def test_the_beat_remembers_where_it_is_told_to(tmp_path: Path) -> None:
    assert "celery.beat:Scheduler" in scheduler_arguments()
    assert str(tmp_path / "kept") in scheduler_arguments(tmp_path / "kept")


@pytest.fixture
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis of this test's own: a killed worker of another test would take its messages along."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def worker(redis: RedisServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of two queues with a process each, whose tasks write into a folder."""
    environment = {
        **os.environ,
        "REDIS_URL": redis.url,
        "DJANGO_SETTINGS_MODULE": "control.settings",
    }
    command = [sys.executable, "-c", WORKER, str(tmp_path), "books", "general"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()


def send(redis: RedisServer, task: str, name: str, queue: str) -> None:
    with Connection(redis.url) as connection:
        app.send_task(task, [name], queue=queue, connection=connection)


@pytest.mark.full
@pytest.mark.integration
def test_what_is_stuck_is_ended_and_holds_up_no_other_queue(
    redis: RedisServer, worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    send(redis, "stuck", "stuck", "general")
    wait_until((tmp_path / "stuck").exists, seconds=300)
    send(redis, "quick", "behind it", "general")
    send(redis, "quick", "of the books", "books")
    wait_until((tmp_path / "of the books").exists, seconds=300)
    wait_until((tmp_path / "behind it").exists, seconds=300)
    assert (tmp_path / "stuck was told").exists()
    assert "Hard time limit (6s) exceeded for stuck" in (tmp_path / "log").read_text()


@pytest.mark.full
@pytest.mark.integration
def test_a_task_is_logged_if_it_did_something_or_failed(
    redis: RedisServer, worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    for task in ("counting", "failing", "quick"):
        send(redis, task, "sent", "general")
    wait_until((tmp_path / "sent").exists, seconds=300)
    log = tmp_path / "log"
    wait_until(lambda: "sent" in log.read_text(), seconds=300)
    lines = [line for line in log.read_text().splitlines() if "Task " in line]
    assert [line.partition("Task ")[2].partition("[")[0] for line in lines] == [
        "counting",
        "failing",
    ]


@pytest.mark.full
@pytest.mark.integration
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)]
)
def test_it_ends_as_a_whole(
    redis: RedisServer, worker: subprocess.Popen[bytes], tmp_path: Path, number: int, code: int
) -> None:
    for queue in ("books", "general"):
        send(redis, "quick", queue, queue)
        wait_until((tmp_path / queue).exists, seconds=300)
    family = psutil.Process(worker.pid).children(recursive=True)
    assert len(family) == 4
    worker.send_signal(number)
    assert worker.wait(120) == code, (tmp_path / "log").read_text()
    assert psutil.wait_procs(family, timeout=60)[1] == []


@pytest.mark.full
@pytest.mark.integration
def test_a_queue_that_dies_ends_all_so_that_all_are_started_again(
    redis: RedisServer, worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    send(redis, "quick", "one", "general")
    wait_until((tmp_path / "one").exists, seconds=300)
    family = psutil.Process(worker.pid).children(recursive=True)
    psutil.Process(worker.pid).children()[0].kill()
    assert worker.wait(120) == 1
    assert psutil.wait_procs(family, timeout=60)[1] == []
