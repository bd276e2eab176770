"""Each container's process, as its manifest starts it: its command, variables and probes."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command, get_commands, load_command_class
from typer.testing import CliRunner

from control.config import ControlConfig
from control.management.production import flaws
from infra.cli import app
from infra.local.config import ROOT
from infra.production import Choices, configuration, write_files
from serving.contract.credential import ServiceIdentity, callers_of
from serving.fleet.config import read_config as read_fleet_config
from serving.gateway.config import GatewayConfig
from tests.fixtures.environment import SESSION, free_port
from tests.fixtures.manifests import Installation, made_secrets
from tests.fixtures.waiting import wait_until

POD_ADDRESS = "10.244.1.7"
CLOSED = "127.0.0.1:1"
RAYS_OWN = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
"""Variables that Ray's client reads by itself."""
READERS: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "control": ControlConfig.from_environment,
    "worker": ControlConfig.from_environment,
    "scheduler": ControlConfig.from_environment,
    "upgrade": ControlConfig.from_environment,
    "fleet": read_fleet_config,
    "gateway": GatewayConfig.from_environment,
}


class Recorded(dict[str, str]):
    """An environment that knows which variables it was asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a variable, or the default."""
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)


@pytest.fixture(scope="module")
def count(installation: Installation) -> int:
    """How many gateways there may be."""
    (scaler,) = installation.of("HorizontalPodAutoscaler")
    return int(scaler["spec"]["maxReplicas"])


@pytest.fixture(scope="module")
def secrets(count: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The Secrets that an operator makes: those of `penstock init`, and Ray's."""
    names = tuple(f"gateway-{number}" for number in range(count))
    files = configuration(Choices("example.com", names, "db.internal", "redis.internal"))
    mail = '# EMAIL_URL="smtp://USER'
    assert mail in files["control.env"]
    files["control.env"] = files["control.env"].replace(mail, mail[2:])
    folder = tmp_path_factory.mktemp("secrets") / "penstock-config"
    write_files(folder, files)
    return made_secrets(folder) | {"ray": {"auth_token": "1" * 64, "redis-password": "2" * 64}}


def test_each_process_gets_its_own_secrets_and_no_others(
    installation: Installation, secrets: dict[str, dict[str, str]], count: int
) -> None:
    assert {each.component: each.secrets for each in installation.pods()} == {
        "control": {"control"},
        "worker": {"control"},
        "scheduler": {"control"},
        "upgrade": {"control", "owner"},
        "fleet": {"fleet", "ray"},
        "gateway": {"gateway", "gateway-credentials"},
        "ray-head": {"ray"},
        "ray-worker": {"ray"},
        "ship-usage": set(),
    }
    assert secrets["owner"].keys() == {"DATABASE_OWNER_URL"}
    assert secrets["fleet"].keys() == {"PENSTOCK_INTERNAL_SECRET"}
    theirs = {"REDIS_URL", "PENSTOCK_KEY_PEPPER", "PENSTOCK_SALT_SECRET"}
    assert secrets["gateway"].keys() == theirs
    assert secrets["gateway-credentials"].keys() == {f"gateway-{n}" for n in range(count)}
    page = (ROOT / "docs/operate/kubernetes.md").read_text()
    assert all(f"`{name}`" in page for name in (*secrets, *secrets["ray"]))


def given(
    installation: Installation,
    secrets: dict[str, dict[str, str]],
    component: str,
    folder: Path,
    address: str = POD_ADDRESS,
) -> dict[str, str]:
    """Return the environment of a component's process, in a pod whose volumes are in a folder."""
    pod = installation.pod(component)
    container = pod.containers[-1]
    fields = {"{status.podIP}": address, "{metadata.name}": f"{component}-0"}
    variables = installation.environment(container, secrets)
    for volume in container["volumeMounts"]:
        place = folder / volume["name"]
        if volume.get("subPathExpr") == "$(POD_NAME)":
            place.write_text(secrets["gateway-credentials"][f"{component}-0"])
        else:
            place.mkdir(exist_ok=True)
        variables = {
            name: str(place) + value.removeprefix(volume["mountPath"])
            if value.startswith(volume["mountPath"])
            else fields.get(value, value)
            for name, value in variables.items()
        }
    return variables


@pytest.mark.parametrize("component", READERS)
def test_every_variable_is_one_that_the_process_reads(
    component: str, installation: Installation, secrets: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    environment = Recorded(given(installation, secrets, component, tmp_path))
    config = READERS[component](environment)
    unread = environment.keys() - environment.asked
    assert unread == {"fleet": RAYS_OWN, "gateway": {"POD_NAME"}}.get(component, set())
    ports = installation.pod(component).ports
    if component == "control":
        assert (config.host, config.port) == (POD_ADDRESS, ports["public"])
        assert (config.internal_api_host, config.internal_api_port) == (
            POD_ADDRESS,
            ports["internal"],
        )
    elif component == "fleet":
        assert (config.host, config.port) == (POD_ADDRESS, ports["http"])
        assert config.keep_replicas
    elif component == "gateway":
        assert (config.host, config.port) == (POD_ADDRESS, ports["public"])
        assert (config.operator_host, config.operator_port) == (POD_ADDRESS, ports["operator"])
        control = given(installation, secrets, "control", tmp_path)
        caller = callers_of(control).find(f"Bearer {config.credential}")
        assert caller == ServiceIdentity("gateway", "gateway-0")
    if isinstance(config, ControlConfig):
        assert flaws(config) == []


def words_of(component: str, installation: Installation) -> list[list[str]]:
    """Return the arguments of `penstock` in each container of a component."""
    return [list(each["args"]) for each in installation.pod(component).containers]


class Replaced(Exception):
    """Ends a command where it would become another program."""


PROGRAMS = {
    "control": [["control.manage", "migrate"], ["control.server"]],
    "worker": [["control.manage", "migrate"], ["control.worker"]],
    "scheduler": [["control.manage", "migrate"], ["celery"]],
    "upgrade": [["control.manage", "upgrade"]],
    "fleet": [["serving.fleet"]],
    "gateway": [["serving.gateway"]],
}


@pytest.mark.parametrize("component", PROGRAMS)
def test_every_command_starts_its_program(
    component: str, installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[list[str]] = []

    def become(_: str, words: list[str], _environment: Mapping[str, str]) -> None:
        started.append(words)
        raise Replaced

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execve", become)
    for words in words_of(component, installation):
        with pytest.raises(Replaced):
            CliRunner().invoke(app, words, catch_exceptions=False)
    for (python, option, *words), program in zip(started, PROGRAMS[component], strict=True):
        assert ([python, option], words[: len(program)]) == ([sys.executable, "-m"], program)
        if words[0] == "control.manage":
            command = load_command_class(get_commands()[words[1]], words[1])
            command.create_parser("penstock", words[1]).parse_args(words[2:])


def test_a_lost_gateways_folder_may_be_shipped(installation: Installation, tmp_path: Path) -> None:
    (words,) = words_of("ship-usage", installation)
    (mount,) = (
        each["mountPath"]
        for each in installation.pod("ship-usage").spec["containers"][0]["volumeMounts"]
        if each["name"] == "data"
    )
    assert words[-1] == mount
    ran = CliRunner().invoke(app, [*words[:-1], str(tmp_path)])
    assert "holds no" in str(ran.exception)


@pytest.mark.integration
@pytest.mark.django_db
def test_services_wait_until_the_database_is_migrated() -> None:
    """As the role of services, which owns nothing."""
    call_command("migrate", check_unapplied=True)


@contextmanager
def running(words: list[str], variables: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Run `penstock` with exactly these variables, and what makes it this checkout's."""
    own = {name: os.environ[name] for name in (SESSION, "PYTHONPATH") if name in os.environ}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "infra.cli", *words],
            env={**variables, **own}, cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        ended = process.poll()
        process.kill()
        process.wait()
        assert ended is None, (folder / "log").read_text()


class Reply(NamedTuple):
    """The status and the body of a response."""

    status: int
    body: str


def ask(url: str) -> Reply | None:
    """Return what an address answers; None while nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return Reply(reply.status, reply.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.read().decode())
    except OSError:
        return None


PORTS = {
    "control": {"public": "PENSTOCK_CONTROL_PORT", "internal": "PENSTOCK_INTERNAL_API_PORT"},
    "fleet": {"http": "PENSTOCK_FLEET_PORT"},
    "gateway": {"public": "PENSTOCK_GATEWAY_PORT", "operator": "PENSTOCK_GATEWAY_OPERATOR_PORT"},
}
AWAY = {
    "DATABASE_URL": f"postgresql://penstock_app@{CLOSED}/penstock",
    "REDIS_URL": f"redis://{CLOSED}/0",
    "PENSTOCK_INTERNAL_API_URL": f"http://{CLOSED}",
    "PENSTOCK_FLEET_URL": f"http://{CLOSED}",
}
"""The servers that a pod would reach: here they are away, and the process waits for them."""


@pytest.mark.integration
@pytest.mark.parametrize("component", PORTS)
def test_every_probe_is_answered_by_the_process(
    component: str, installation: Installation, secrets: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    variables = given(installation, secrets, component, tmp_path, "127.0.0.1")
    variables |= {name: value for name, value in AWAY.items() if name in variables}
    ports = {name: free_port() for name in PORTS[component]}
    variables |= {PORTS[component][name]: str(port) for name, port in ports.items()}
    container = installation.pod(component).containers[-1]
    probes = {key: value["httpGet"] for key, value in container.items() if key.endswith("Probe")}
    urls = {
        key: f"http://127.0.0.1:{ports[probe['port']]}{probe['path']}"
        for key, probe in probes.items()
    }
    (words,) = words_of(component, installation)[-1:]
    with running(words, variables, tmp_path):
        alive = wait_until(lambda: ask(urls["startupProbe"]), "it answers", seconds=300)
        assert alive == ask(urls["livenessProbe"]) == Reply(200, "ok\n")
        ready = ask(urls["readinessProbe"])
        assert ready is not None
        assert ready.status == 503  # and not 404: the path is one that says what is missing
