"""The command line: a mistake is one line, a bug says so, help is there, and a host needs only the
packages of what it runs."""

import subprocess
import sys

import pytest

from infra import cli, command
from infra.local.config import ROOT

pytestmark = pytest.mark.unit
COMMANDS = {
    "": (
        *("up", "down", "status", "logs", "reset", "vllm"),
        *("init", "upgrade", "backup", "restore", "check", "django"),
    ),
    "run": ("control", "worker", "scheduler", "gateway", "fleet"),
    "credentials": ("issue", "rotate-encryption"),
    "gateways": ("release", "ship-usage"),
    "fleet": ("record-devices",),
    "operators": ("create-token",),
    "audit": ("verify",),
    "billing": (
        *("check-integrity", "close-month", "archive-usage"),
        *("rebuild-usage", "export-focus", "stripe-check"),
    ),
}
HEAVY = ("django", "psycopg", "psutil", "circus", "aiohttp", "celery", "redis", "vllm")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `penstock` with arguments and variables; return the exit status, output and errors."""

    def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
        ours = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "PENSTOCK_INTERNAL_SECRET")
        for name in (*ours, "PENSTOCK_HOME", "PENSTOCK_PORT_BASE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (["up", "--engine", "steam"], {}, "PENSTOCK_ENGINE is 'steam'; wanted vllm or simulated"),
        (["up", "--model", "./nowhere"], {}, "PENSTOCK_MODEL is './nowhere'; wanted a folder or"),
        (["up", "--model", "/tmp"], {}, "wanted a folder with a config.json"),
        (["up"], {"PENSTOCK_PORT_BASE": "80"}, "PENSTOCK_PORT_BASE is '80'; wanted a number"),
        (["up"], {"PENSTOCK_HOME": "/tmp/" + "x" * 90}, "PENSTOCK_HOME has 95 characters"),
        (["reset", "--yes"], {"PENSTOCK_HOME": "/tmp/none"}, "is no home of Penstock's"),
        (["logs"], {"PENSTOCK_HOME": "/tmp/none"}, "no such log"),
        (
            ["credentials", "issue", "eu-1"],
            {"PENSTOCK_HOME": "/tmp/none"},
            "PENSTOCK_INTERNAL_SECRET is not set",
        ),
        (
            ["credentials", "issue", "EU 1"],
            {"PENSTOCK_HOME": "/tmp/none", "PENSTOCK_INTERNAL_SECRET": "a-secret-of-16-and-more"},
            "'EU 1' can't name a gateway",
        ),
    ],
)
def test_a_mistake_is_one_line(run, arguments, variables, words: str) -> None:
    status, output, errors = run(*arguments, **variables)
    assert status == command.EXIT_FAILED
    assert output == ""
    assert errors.startswith("penstock: ") and errors.count("\n") == 1
    assert words in errors


def test_nothing_running_is_an_exit_status_of_its_own(run) -> None:
    status, output, _ = run("status", PENSTOCK_HOME="/tmp/none")
    assert status == command.EXIT_NOT_RUNNING
    assert "Nothing runs in /tmp/none" in output


def test_a_bug_is_one_line_and_a_traceback_on_request(run, monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(cli, "read_config", broken)
    status, _, errors = run("status", PENSTOCK_DEBUG="0")
    assert status == command.EXIT_BUG
    assert errors == "penstock: a bug: KeyError: 'oops' (PENSTOCK_DEBUG=1 shows where)\n"
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    with pytest.raises(KeyError, match="oops"):
        cli.main()


@pytest.mark.parametrize("group", COMMANDS)
def test_every_group_lists_its_commands(run, group: str) -> None:
    status, overview, _ = run(*group.split(), "--help")
    assert status == 0
    for name in COMMANDS[group]:
        assert f"\n  {name} " in overview
    if group:
        needed = "gateway" if group == "fleet" else "control"
        assert f"penstock[{needed}]" in overview  # the packages that it needs


@pytest.mark.parametrize(
    "arguments",
    [["up"], ["status"], ["logs"], ["run", "gateway"], ["billing", "close-month"], ["check"]],
)
def test_a_command_explains_itself(run, arguments: list[str]) -> None:
    status, explained, _ = run(*arguments, "--help")
    assert status == 0
    assert f"Usage: penstock {' '.join(arguments)}" in explained


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["run", "gateway"], "gateway"),
        (["run", "worker"], "control"),
        (["billing", "close-month"], "control"),
        (["status"], "local"),
    ],
)
def test_missing_packages_are_named_by_their_extra(
    run, monkeypatch, arguments: list[str], extra: str
) -> None:
    monkeypatch.setitem(command.EXTRA_PACKAGES, extra, "a_package_that_nobody_installs")
    status, _, errors = run(*arguments, PENSTOCK_HOME="/tmp/none")
    assert status == command.EXIT_FAILED
    assert f"pip install 'penstock[{extra}]'" in errors


def test_the_command_imports_none_of_the_packages_of_its_extras() -> None:
    code = f"import sys, infra.cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    shown = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert shown == "[]\n"
