"""The change feed at scale: from PostgreSQL through control into a gateway, and from its disk."""

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from serving.contract.credential import ServiceIdentity, issue
from tests.benchmarks.books.server import Database, serving
from tests.benchmarks.books.worker import workers
from tests.benchmarks.failure import BenchmarkFailed
from tests.benchmarks.feed_reader import NOBODY, Measured
from tests.benchmarks.machine import pinned
from tests.benchmarks.plan import Plan
from tests.benchmarks.process import free_port, running
from tests.benchmarks.published import KEYS_EACH, publish
from tests.benchmarks.report import Row, Table, percentile

GATEWAY = ServiceIdentity("gateway", "bench")
START_SECONDS = 60.0
MEGABYTE = 10**6
REMARKS = (
    "A real gateway on the measured core; PostgreSQL and control on the others. Each round begins"
    " with an empty folder, then starts anew on what that left on disk, with control there.",
    "A stall is by how much a clock that ticks each millisecond was late, and the CPU time that the"
    " loop's thread spent meanwhile: the first holds what else runs on the core.",
    "A change is decoded and taken in as if told alone; a key is looked up for the first time, then"
    " again, then one that there is not.",
)


def measure(plan: Plan) -> Table:
    """Return what it takes to read everything from control, and again from disk."""
    keys, secret = plan.events, secrets.token_hex(16)
    with serving(plan.folder) as server:
        database = server.database("feed")
        records = _publish(database, keys)
        with _control(plan, database, secret) as url:
            rounds = [_round(plan, url, secret, keys) for _ in range(plan.rounds)]
        remarks = [server.settings(), *REMARKS]
        server.drop(database.name)
    title = f"Change feed: {keys:,} keys, {keys // KEYS_EACH:,} organizations with a project each"
    checks = [f"{records:,} records told, every key looked up was found, every revoked one was not"]
    from_control, from_disk = zip(*rounds, strict=True)
    rows = [*_snapshot_rows(from_control, records), *_disk_rows(from_disk), *_rows(from_control)]
    return Table(title, rows, checks, remarks)


def _publish(database: Database, keys: int) -> int:
    with workers(database, 1) as [worker]:
        worker.run("world.prepare_database")
    return publish(database.superuser_url, keys)


@contextmanager
def _control(plan: Plan, database: Database, secret: str) -> Iterator[str]:
    port, internal_port = free_port(), free_port()
    url = f"http://127.0.0.1:{internal_port}"
    env = {
        "DATABASE_URL": database.app_url,
        "DATABASE_OWNER_URL": database.owner_url,
        "REDIS_URL": NOBODY.replace("http", "redis"),
        "PENSTOCK_CONTROL_PORT": str(port),
        "PENSTOCK_INTERNAL_API_PORT": str(internal_port),
        "PENSTOCK_INTERNAL_SECRET": secret,
        **{
            f"PENSTOCK_{name}": secrets.token_hex(16)
            for name in ("SECRET_KEY", "KEY_PEPPER", "ENCRYPTION_KEY", "PLAYGROUND_SECRET")
        },
    }
    command = [sys.executable, "-m", "control.server"]
    with running("control", command, folder=plan.folder, cores=plan.split.others, env=env) as child:
        child.wait_until_answers(f"http://127.0.0.1:{port}/accounts/login/", seconds=START_SECONDS)
        yield url


def _round(plan: Plan, url: str, secret: str, keys: int) -> tuple[Measured, Measured]:
    folder = plan.folder / "gateway-of-feed"
    shutil.rmtree(folder, ignore_errors=True)
    options = [
        "--control-url",
        url,
        "--credential",
        issue(secret, GATEWAY),
        "--folder",
        str(folder),
    ]
    command = [sys.executable, "-m", "tests.benchmarks.feed_reader", *options, "--keys", str(keys)]
    first, again = (_read(plan, command) for _ in range(2))
    return first, again


def _read(plan: Plan, command: Sequence[str]) -> Measured:
    log = plan.folder / "feed-reader.log"
    with pinned(plan.split.measured), log.open("wb") as sink:
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=sink)
    if done.returncode:
        raise BenchmarkFailed(f"the reader ended with {done.returncode}; see {_end(log)}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Measured)


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-3_000:]


def _snapshot_rows(rounds: Sequence[Measured], records: int) -> Iterator[Row]:
    yield Row("snapshot to serving", "from control", "s", [r.serving_seconds for r in rounds])
    yield Row("snapshot to durable", "from control", "s", [r.saved_seconds for r in rounds])
    yield Row("longest stall", "from control", "ms", [r.stall_ms for r in rounds])
    yield Row("longest stall, CPU", "from control", "ms", [r.stall_cpu_ms for r in rounds])
    yield Row("resident", "from control", "MB", [r.resident_bytes / MEGABYTE for r in rounds])
    yield Row("at most resident", "from control", "MB", [r.peak_bytes / MEGABYTE for r in rounds])
    yield Row("without records", "from control", "MB", [r.bare_bytes / MEGABYTE for r in rounds])
    grown = [(r.resident_bytes - r.bare_bytes) / records for r in rounds]
    yield Row("bytes a record", "from control", "bytes", grown)


def _disk_rows(rounds: Sequence[Measured]) -> Iterator[Row]:
    yield Row("start to serving", "from disk", "s", [r.loaded_seconds for r in rounds])
    yield Row("longest stall", "from disk", "ms", [r.stall_ms for r in rounds])
    yield Row("longest stall, CPU", "from disk", "ms", [r.stall_cpu_ms for r in rounds])
    yield Row("at most resident", "from disk", "MB", [r.peak_bytes / MEGABYTE for r in rounds])


def _rows(rounds: Sequence[Measured]) -> Iterator[Row]:
    timed = {
        f"change of {name}": [r.change_us[name] for r in rounds] for name in rounds[0].change_us
    }
    timed |= {
        "look-up, first": [r.cold_us for r in rounds],
        "look-up, again": [r.known_us for r in rounds],
        "look-up, unknown": [r.unknown_us for r in rounds],
    }
    for name, spent in timed.items():
        yield Row(name, "median", "µs", [percentile(each, 50) for each in spent])
        yield Row(name, "p99", "µs", [percentile(each, 99) for each in spent])
