"""The folder `platform/` is a source root; `import platform` stays Python's own everywhere."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from infra.local.config import ROOT

pytestmark = pytest.mark.unit

ASK = "import importlib, sys; importlib.import_module(sys.argv[1]); import platform; "
ENTRIES = ("infra.cli", "serving.gateway", "serving.fleet", "control", "celery", "circus")


@pytest.mark.parametrize("folder", [ROOT, ROOT / "platform"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_platform_is_pythons_own(folder: Path, entry: str) -> None:
    command = [sys.executable, "-c", ASK + "print(platform.__file__)", entry]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert Path(result.stdout.strip()).parent == Path(sysconfig.get_path("stdlib"))


def test_the_source_root_is_no_package() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()
