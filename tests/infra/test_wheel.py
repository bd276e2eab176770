"""The wheel holds what the code reads beside itself."""

from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from infra.local.config import ROOT

pytestmark = pytest.mark.unit
PACKAGES = ("platform/control", "serving", "billing", "web", "infra")
ARTEFACTS = ("systemd", "nginx", "haproxy", "postgres", "compose", "kubernetes")


@pytest.fixture(scope="module")
def in_wheel() -> set[str]:
    """The files of the wheel, by their path in the checkout."""
    builder = WheelBuilder(str(ROOT))
    return {each.relative_path for each in builder.recurse_included_files()}


def files_in(*folders: str) -> set[str]:
    """Files of the checkout that lie in a folder of such a name."""
    return {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and set(folders) & set(path.relative_to(ROOT).parts)
    }


@pytest.mark.parametrize("folder", ["templates", "static", "sql", "typeset", "weights"])
def test_the_wheel_holds_every(folder: str, in_wheel: set[str]) -> None:
    found = files_in(folder)
    assert len(found) > 3
    assert found <= in_wheel


@pytest.mark.parametrize("folder", ARTEFACTS)
def test_the_wheel_holds_what_operators_copy(folder: str, in_wheel: set[str]) -> None:
    files = (path for path in (ROOT / "infra" / folder).rglob("*") if path.is_file())
    found = {str(path.relative_to(ROOT)) for path in files}
    assert found
    assert found <= in_wheel


def test_the_wheel_holds_all_modules(in_wheel: set[str]) -> None:
    modules = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules <= in_wheel


def test_nothing_is_read_from_beside_the_packages(settings: object) -> None:
    """Folders of templates and static files lie in packages, wherever those are installed."""
    (engine,) = settings.TEMPLATES  # type: ignore[attr-defined]
    packages = [ROOT / each for each in PACKAGES]
    for each in (*engine["DIRS"], *settings.STATICFILES_DIRS):  # type: ignore[attr-defined]
        assert Path(each).is_dir()
        assert any(package in Path(each).parents for package in packages)
