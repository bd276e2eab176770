"""Control collects its static files when it starts, once a version."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.contrib.staticfiles.finders import get_finder
from django.test import override_settings

from control.server import collect_static_files
from tests.fixtures.database import app_url
from tests.fixtures.environment import free_port
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.integration
STORAGE = "servestatic.storage.CompressedManifestStaticFilesStorage"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of one stylesheet."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "console.css").write_text("body { margin: 0 }\n" * 100)
    return folder


def test_files_are_collected_once_a_version_and_those_of_the_version_before_stay(
    tmp_path: Path, source: Path
) -> None:
    folder = tmp_path / "static"
    with override_settings(
        STATIC_ROOT=folder,
        STATICFILES_DIRS=[source],
        STATICFILES_FINDERS=["django.contrib.staticfiles.finders.FileSystemFinder"],
        STORAGES={"staticfiles": {"BACKEND": STORAGE}},
    ):
        get_finder.cache_clear()
        try:
            assert collect_static_files(folder)
            (first,) = folder.glob("console.*.css")
            assert first.with_suffix(".css.gz").exists()
            assert not collect_static_files(folder)
            (source / "console.css").write_text("body { margin: 1px }\n")
            assert collect_static_files(folder)
        finally:
            get_finder.cache_clear()
    assert first in (both := set(folder.glob("console.*.css")))
    assert len(both) == 2


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "static").write_text("")
    with pytest.raises(OSError, match="static"):
        collect_static_files(tmp_path / "static")


@pytest.fixture
def started(tmp_path: Path, transactional_db: None) -> Iterator[str]:
    """The address of a control process that was started with an empty folder for static files."""
    port = free_port()
    environment = {
        "DJANGO_SETTINGS_MODULE": "control.settings",
        "DATABASE_URL": app_url(),
        "PENSTOCK_CONTROL_PORT": str(port),
        "PENSTOCK_INTERNAL_API_PORT": str(free_port()),
        "PENSTOCK_STATIC_DIR": str(tmp_path),
    }
    with (tmp_path.parent / "control.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "control.server"],
            env={**os.environ, **environment}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_until(lambda: is_ready(f"http://127.0.0.1:{port}") or process.poll() is not None)
        assert process.poll() is None, Path(log.name).read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@pytest.mark.full
def test_a_process_that_starts_fills_its_folder_and_its_pages_link_to_the_files(
    started: str, tmp_path: Path
) -> None:
    page = httpx.get(f"{started}/accounts/login/")
    assert page.status_code == httpx.codes.OK
    linked = re.findall(r'(?:href|src)="/static/([^"]+\.(?:css|js))"', page.text)
    assert any(name.endswith(".css") for name in linked)
    for name in linked:
        assert re.search(r"\.[0-9a-f]{12}\.(css|js)$", name), "a name with the file's digest"
        assert httpx.get(f"{started}/static/{name}").content == (tmp_path / name).read_bytes()
