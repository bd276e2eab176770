"""A backup is whole and fits the platform's secrets, or it is not restored."""

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from infra import backup
from infra.backup import back_up, fingerprint, read_manifest, restore
from infra.local.config import LocalError
from tests.fixtures.database import superuser_url

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]
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
