"""The command line: a mistake is one line, a bug says so, help is there."""

import pytest

from infra.local import cli

pytestmark = pytest.mark.unit


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `penstock` with arguments and variables; return the exit code, output and errors."""

    def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
        ours = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")
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
    ],
)
def test_a_mistake_is_one_line(run, arguments, variables, words: str) -> None:
    code, output, errors = run(*arguments, **variables)
    assert code == cli.EXIT_FAILED
    assert output == ""
    assert errors.startswith("penstock: ") and errors.count("\n") == 1
    assert words in errors


def test_nothing_running_is_an_exit_code_of_its_own(run) -> None:
    code, output, _ = run("status", PENSTOCK_HOME="/tmp/none")
    assert code == cli.EXIT_NOT_RUNNING
    assert "Nothing runs in /tmp/none" in output


def test_a_bug_is_one_line_and_a_traceback_on_request(run, monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(cli, "read_config", broken)
    code, _, errors = run("status", PENSTOCK_DEBUG="0")
    assert code == cli.EXIT_BUG
    assert errors == "penstock: a bug: KeyError: 'oops' (PENSTOCK_DEBUG=1 shows where)\n"
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    with pytest.raises(KeyError, match="oops"):
        cli.main()


def test_every_command_explains_itself(run) -> None:
    _, overview, _ = run("--help")
    for name in (
        "up",
        "down",
        "reset",
        "status",
        "logs",
        "manage",
        "check-integrity",
        "close-month",
        "release-gateway",
        "export-focus",
    ):
        assert f"\n  {name} " in overview
    for name in ("up", "status", "logs", "gateway"):
        code, explained, _ = run(name, "--help")
        assert code == 0
        assert f"Usage: penstock {name}" in explained
