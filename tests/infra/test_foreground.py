"""What `penstock up` shows while it runs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from infra.demo.examples import summary
from infra.local import foreground
from infra.local.config import LocalConfig, read_config
from infra.local.foreground import State, States, changes, loading_models, read_states
from infra.local.seed import Credentials, DemoLogin
from serving.contract.replica import ReplicaRecord

pytestmark = pytest.mark.unit
MODELS = {"dep_1": "penstock-demo", "dep_2": "penstock-demo-embed"}
STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def config(tmp_path) -> LocalConfig:
    config = read_config({"PENSTOCK_HOME": str(tmp_path / "h"), "PENSTOCK_PORT_BASE": "9000"})
    home = foreground.StateDirectory(config.home)
    home.make()
    home.secrets()
    return config


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the supervisor and the fleet answer."""
    answers = SimpleNamespace(
        pids={"gateway": 12, "control": 11},
        replicas=[replica("rep_1", "dep_1", "ready"), replica("rep_2", "dep_2", "loading")],
    )
    monkeypatch.setattr(
        foreground, "Supervisor", lambda _: SimpleNamespace(pids=lambda: answers.pids)
    )
    monkeypatch.setattr(foreground, "list_replicas", lambda *_: answers.replicas)
    return answers


def replica(replica_id: str, deployment_id: str, state, **changed: str) -> ReplicaRecord:
    return ReplicaRecord(
        replica_id, deployment_id, "http://h", state, 4, STARTED_AT, "vllm", **changed
    )


def test_processes_and_models_have_a_state(config: LocalConfig, running: SimpleNamespace) -> None:
    running.replicas[1] = replica("rep_2", "dep_2", "loading", progress="weights 40 %")
    assert list(read_states(config, MODELS, {}).values()) == [
        State("control", "running (pid 11)"),
        State("gateway", "running (pid 12)"),
        State("penstock-demo", "ready"),
        State("penstock-demo-embed", "loading", "weights 40 %"),
    ]
    assert loading_models(config, MODELS) == ["penstock-demo-embed"]


def test_what_does_not_answer_for_a_moment_keeps_its_state(
    config: LocalConfig, running: SimpleNamespace
) -> None:
    known = read_states(config, MODELS, {})
    running.pids, running.replicas = {}, None
    assert read_states(config, MODELS, known) == known


def test_a_change_is_one_line_and_progress_is_none() -> None:
    before: States = {
        "gateway": State("gateway", "running (pid 12)"),
        "rep_1": State("penstock-demo", "loading", "weights"),
        "rep_2": State("penstock-demo-embed", "ready"),
    }
    after: States = {
        "gateway": State("gateway", "running (pid 13)"),
        "rep_1": State("penstock-demo", "loading", "graphs"),
        "rep_3": State("penstock-demo", "failed: out of memory"),
    }
    assert [line.split(maxsplit=1) for line in changes(before, after)] == [
        ["gateway", "running (pid 13)"],
        ["penstock-demo", "failed: out of memory"],
        ["penstock-demo-embed", "stopped"],
    ]
    assert changes(after, after) == []


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_gets_a_table_and_a_pipe_gets_lines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    config: LocalConfig,
    is_terminal: bool,
) -> None:
    def polled(*_: object) -> Iterator[States]:
        yield {"rep_1": State("penstock-demo", "loading", "weights")}
        yield {"rep_1": State("penstock-demo", "ready")}

    monkeypatch.setattr(foreground, "_poll", polled)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    foreground.watch(config, MODELS)
    shown = capsys.readouterr().out
    assert ("Progress" in shown and "loading" in shown) == is_terminal
    assert "ready" in shown


@pytest.mark.parametrize("loading", [[], ["penstock-demo-embed"]])
def test_the_summary_says_how_to_go_on(config: LocalConfig, loading: list[str]) -> None:
    logins = DemoLogin("owner@a.example", "opens-it"), DemoLogin("operator@a.example", "opens-too")
    credentials = Credentials("http://api/v1", "sk-pen-1", "http://c", "http://c/admin/", *logins)
    text = summary(credentials, config, loading)
    for wanted in ("opens-it", "opens-too", "sk-pen-1", "curl http://api/v1", "OpenAI(base_url="):
        assert wanted in text
    assert ("Still loading: penstock-demo-embed." in text) == bool(loading)
    assert [line for line in text.splitlines() if line.startswith(("  1.", "  2.", "  3."))]
