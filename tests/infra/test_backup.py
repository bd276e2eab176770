"""A backup is whole and fits the platform's secrets, or it is not restored."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from infra import backup
from infra.backup import back_up, fingerprint, read_manifest, restore
from infra.local.config import LocalError
from tests.fixtures.database import superuser_url

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
UNKNOWN_SETTING = "SET transaction_timeout = 0;"
ROWS = "INSERT INTO texts SELECT md5(n::text) FROM generate_series(1, 9000) AS n"
PEPPER, KEY = "pepper-of-this-platform", "key-of-this-platform-00"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a platform with one archived day. A schema of the tests themselves is the
    superuser's, so that it dumps all."""
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "usage-2026-01-01.parquet").write_bytes(b"rows")
    return {
        "DATABASE_OWNER_URL": superuser_url(),
        "PENSTOCK_KEY_PEPPER": PEPPER,
        "PENSTOCK_ENCRYPTION_KEY": KEY,
        "PENSTOCK_ARCHIVE_DIR": str(archive),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the backup that the first test makes."""
    return tmp_path_factory.mktemp("made") / "backup"


@pytest.fixture
def folder(made: Path, tmp_path: Path, environ: dict[str, str]) -> Path:
    """A backup of this test's own."""
    if not made.exists():
        assert "complete" in list(back_up(made, environ))[-1]
    return shutil.copytree(made, tmp_path / "backup")


def refusal(folder: Path, environ: dict[str, str]) -> str:
    """Return why a backup is not restored."""
    with pytest.raises(LocalError) as refused:
        list(restore(folder, environ, dry_run=True))
    return str(refused.value)


def test_a_backup_holds_all_but_the_secrets_and_is_its_owners_alone(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert manifest["archive_files"] == ["usage-2026-01-01.parquet"]
    assert manifest["secrets"]["PENSTOCK_KEY_PEPPER"] == fingerprint(PEPPER) != fingerprint(KEY)
    assert PEPPER not in (folder / "manifest.json").read_text()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_backup_overwrites_nothing_and_a_restore_neither(
    folder: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(LocalError, match="exists; name a new folder"):
        list(back_up(folder, environ))
    assert "is not empty, and a restore overwrites nothing" in refusal(folder, environ)


@pytest.mark.parametrize("name", ["PENSTOCK_KEY_PEPPER", "PENSTOCK_ENCRYPTION_KEY"])
def test_other_secrets_are_refused_and_earlier_ones_fit(
    folder: Path, environ: dict[str, str], name: str
) -> None:
    right, environ[name] = environ[name], "of another platform"
    assert refusal(folder, environ).startswith(f"{name} is not the one of this backup: no ")
    environ[backup.SECRETS[name][0]] = f"an-older-one {right}"
    assert "is not empty" in refusal(folder, environ)


def cut(folder: Path) -> None:
    dump = folder / "database.dump"
    dump.write_bytes(dump.read_bytes()[:-1])


def reformat(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cut, "database.dump was changed since it was written"),
        (reformat, "is of another version of Penstock"),
        (lambda folder: (folder / "manifest.json").unlink(), "is no complete backup"),
        (lambda folder: (folder / "database.dump").unlink(), "is no complete backup"),
        (lambda folder: next((folder / "archive").iterdir()).unlink(), "lacks usage-2026-01-01"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused(
    folder: Path, environ: dict[str, str], spoil: Callable[[Path], None], words: str
) -> None:
    spoil(folder)
    assert words in refusal(folder, environ)


def test_what_is_missing_for_a_backup_is_named_and_leaves_no_folder(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LocalError, match="PENSTOCK_ENCRYPTION_KEY is not set"):
        list(back_up(tmp_path / "one", environ | {"PENSTOCK_ENCRYPTION_KEY": ""}))
    nowhere = {"DATABASE_OWNER_URL": "postgresql://x@127.0.0.1:1/x"}
    with pytest.raises(LocalError, match=r"DATABASE_OWNER_URL: .*[Cc]onnection refused"):
        list(back_up(tmp_path / "two", environ | nowhere))
    monkeypatch.setattr(backup, "_major", lambda _: 14)
    with pytest.raises(LocalError, match=r"pg_dump \d+ or later is not on the PATH"):
        list(back_up(tmp_path / "three", environ))
    assert not list(tmp_path.glob("[ot]*"))


@pytest.fixture
def two_databases(environ: dict[str, str]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The environments of a database with one table of texts and of an empty one. The host of the
    first address is no name: only its `hostaddr` leads anywhere."""
    url = urlsplit(environ["DATABASE_OWNER_URL"])
    names = [f"backup_{which}_{os.getpid()}" for which in ("full", "empty")]
    full, empty = (url._replace(path=f"/{name}") for name in names)
    with psycopg.connect(url.geturl(), autocommit=True) as server:
        for name in names:
            server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            with psycopg.connect(full.geturl()) as connection:
                connection.execute("CREATE TABLE texts (text text)")
                connection.execute("INSERT INTO texts VALUES (%s)", [UNKNOWN_SETTING])
                connection.execute(ROWS)
            named = full.netloc.replace(str(full.hostname), "nowhere.invalid")
            strange = full._replace(netloc=named, query=f"hostaddr={full.hostname}")
            yield tuple(
                environ | {"DATABASE_OWNER_URL": each.geturl()} for each in (strange, empty)
            )
        finally:
            for name in names:
                dropped = sql.SQL("DROP DATABASE {} WITH (FORCE)")
                server.execute(dropped.format(sql.Identifier(name)))


def texts(environ: dict[str, str]) -> list[str] | None:
    """Return the rows of a database's table, or None if it has no table."""
    with psycopg.connect(environ["DATABASE_OWNER_URL"]) as connection:
        if connection.execute("SELECT to_regclass('texts')").fetchone() == (None,):
            return None
        return [text for (text,) in connection.execute("SELECT text FROM texts")]


def test_a_dump_is_loaded_whole_or_not_at_all(
    tmp_path: Path, two_databases: tuple[dict[str, str], dict[str, str]]
) -> None:
    full, empty = two_databases
    folder = tmp_path / "backup"
    list(back_up(folder, full))
    whole = (folder / "database.dump").read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    half = whole[: len(whole) // 2]
    (folder / "database.dump").write_bytes(half)
    manifest["dump_sha256"] = hashlib.sha256(half).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(LocalError, match="the dump was not loaded, and nothing was changed"):
        list(restore(folder, empty))
    assert texts(empty) is None
    (folder / "database.dump").write_bytes(whole)
    manifest["dump_sha256"] = hashlib.sha256(whole).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    steps = restore(folder, empty)
    assert [next(steps) for _ in range(2)][1] == "The database is back."
    loaded = texts(empty)
    assert loaded is not None
    assert (len(loaded), loaded[0]) == (9001, UNKNOWN_SETTING)


def test_no_argument_of_a_program_holds_a_secret(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: list[str] = []

    def run(command: list[str | Path], **options: object) -> subprocess.CompletedProcess[str]:
        arguments.extend(map(str, command))
        return subprocess.CompletedProcess(command, 1, "x) 99", "x")

    monkeypatch.setattr(subprocess, "run", run)
    url = environ["DATABASE_OWNER_URL"]
    with pytest.raises(LocalError, match="the database was not dumped"):
        list(back_up(tmp_path / "one", environ))
    printed = " ".join(arguments)
    assert "--format=custom" in printed
    assert "password=" not in printed
    assert f":{urlsplit(url).password}@" not in printed
    environ["DATABASE_OWNER_URL"] = f"{url}?sslpassword=x"
    with pytest.raises(LocalError, match="DATABASE_OWNER_URL has sslpassword, which everybody"):
        list(back_up(tmp_path / "two", environ))
