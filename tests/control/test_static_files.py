"""Control collects its static files when it starts, once a version."""

from pathlib import Path

import pytest
from django.contrib.staticfiles.finders import get_finder
from django.test import override_settings

from control.static_files import collect

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
            assert collect(folder)
            (first,) = folder.glob("console.*.css")
            assert first.with_suffix(".css.gz").exists()
            assert not collect(folder)
            (source / "console.css").write_text("body { margin: 1px }\n")
            assert collect(folder)
        finally:
            get_finder.cache_clear()
    assert first in (both := set(folder.glob("console.*.css")))
    assert len(both) == 2


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "static").write_text("")
    with pytest.raises(OSError, match="static"):
        collect(tmp_path / "static")
