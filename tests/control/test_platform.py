"""The folder `platform/` never shadows Python's own module of that name."""

import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STDLIB = Path(sysconfig.get_path("stdlib")).resolve()
SHOW = "import platform; print(platform.__file__, platform.python_version())"


def test_pythons_own_platform_is_imported_here() -> None:
    assert Path(platform.__file__).resolve().parent == STDLIB


@pytest.mark.integration
@pytest.mark.parametrize("folder", ["", "platform"])
def test_pythons_own_platform_is_imported_from_any_folder(folder: str) -> None:
    command = [sys.executable, "-c", SHOW]
    output = subprocess.check_output(command, cwd=ROOT / folder, text=True)
    assert str(STDLIB) in output


@pytest.mark.integration
def test_pythons_own_platform_is_imported_beside_manage_py() -> None:
    code = f"import sys; sys.path.insert(0, 'platform'); {SHOW}"
    output = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert str(STDLIB) in output
