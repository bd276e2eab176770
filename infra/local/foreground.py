"""The display of `penstock up` until Ctrl-C: on a terminal a live table of processes and models,
elsewhere a line whenever one of them changes its state."""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import typer
from rich.live import Live
from rich.table import Table

from infra.local.config import LocalConfig
from infra.local.health import list_replicas
from infra.local.processes import in_stop_order
from infra.local.state_dir import StateDirectory
from infra.local.supervisor import Supervisor

POLL_SECONDS = 1.0
NAME_CHARACTERS = 24
LOADING = ("pending", "loading", "canary")
STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class State:
    """The state of a process or of a model's replica, in words, and its progress."""

    name: str
    state: str
    progress: str = ""


States = dict[str, State]
"""By the name of a process or the id of a replica."""


def watch(config: LocalConfig, models: Mapping[str, str]) -> None:
    """Show the states until the supervisor ends. `models` names a deployment's model by its id."""
    show = _show_table if sys.stdout.isatty() else _print_changes
    show(_poll(config, models))


def read_states(config: LocalConfig, models: Mapping[str, str], known: States) -> States:
    """Return the states now. A process or replica that does not
    answer at the moment keeps its known state."""
    home = StateDirectory(config.home)
    pids = Supervisor(home).pids()
    processes = {
        name: State(name, f"running (pid {pids[name]})") for name in reversed(in_stop_order(pids))
    }
    replicas = list_replicas(config.ports.fleet, home.credential("control", "up"))
    models_now = {
        each.replica_id: State(
            models.get(each.deployment_id, each.deployment_id),
            f"{each.state}: {each.reason}" if each.reason else each.state,
            each.progress,
        )
        for each in replicas or []
    }
    if not pids or replicas is None:
        return {**known, **processes, **models_now}
    return {**processes, **models_now}


def loading_models(config: LocalConfig, models: Mapping[str, str]) -> list[str]:
    """Return the names of models that have a replica which is not ready yet."""
    credential = StateDirectory(config.home).credential("control", "up")
    replicas = list_replicas(config.ports.fleet, credential) or []
    loading = {each.deployment_id for each in replicas if each.state in LOADING}
    return sorted(models.get(each, each) for each in loading)


def changes(before: States, after: States) -> list[str]:
    """Return a line for each process and replica whose state is another one now."""
    gone = {key: State(each.name, STOPPED) for key, each in before.items() if key not in after}
    return [
        f"{each.name:<{NAME_CHARACTERS}} {each.state}"
        for key, each in {**after, **gone}.items()
        if key not in before or before[key].state != each.state
    ]


def _poll(config: LocalConfig, models: Mapping[str, str]) -> Iterator[States]:
    supervisor = Supervisor(StateDirectory(config.home))
    states: States = {}
    while supervisor.pid() is not None:
        states = read_states(config, models, states)
        yield states
        time.sleep(POLL_SECONDS)


def _print_changes(polled: Iterator[States]) -> None:
    before = next(polled, {})
    for states in polled:
        for line in changes(before, states):
            typer.echo(line)
        before = states


def _show_table(polled: Iterator[States]) -> None:
    with Live(auto_refresh=False) as live:
        for states in polled:
            live.update(_table(states), refresh=True)


def _table(states: States) -> Table:
    table = Table("Process or model", "State", "Progress", box=None, pad_edge=False)
    for each in states.values():
        table.add_row(each.name, each.state, each.progress)
    return table
