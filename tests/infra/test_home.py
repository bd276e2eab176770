"""The home folder: secrets are made once and stay private; logs are read as they grow."""

import stat
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from infra.local.config import (
    DEMO_EMBEDDER,
    DEMO_MODEL_ID,
    ONE_ROLE,
    PORT_BASE,
    LocalError,
    read_config,
)
from infra.local.logs import LogTail
from infra.local.processes import RUN_VARIABLE, build_environment, owner_environment
from infra.local.state_dir import StateDirectory
from infra.local.status import read_status

pytestmark = pytest.mark.unit


@pytest.fixture
def home(tmp_path: Path) -> StateDirectory:
    home = StateDirectory(tmp_path / "home")
    home.make()
    return home


def test_secrets_are_made_once_and_are_private(home: StateDirectory) -> None:
    secrets = home.secrets()
    assert home.secrets() == secrets
    assert len(set(secrets.values())) == len(secrets)
    assert all(len(value) >= 32 for value in secrets.values())
    assert stat.S_IMODE(home.secrets_file.stat().st_mode) == 0o600


def test_the_environment_is_ours_whatever_is_inherited(home: StateDirectory) -> None:
    config = read_config({"PENSTOCK_HOME": str(home.path), "PENSTOCK_PORT_BASE": "9000"})
    inherited = {"PENSTOCK_INTERNAL_SECRET": "weak", "DJANGO_SETTINGS_MODULE": "other", "LANG": "C"}
    environment = build_environment(config, home, inherited)
    assert environment["PENSTOCK_INTERNAL_SECRET"] == home.secrets()["PENSTOCK_INTERNAL_SECRET"]
    assert environment["DJANGO_SETTINGS_MODULE"] == "control.settings"
    assert environment["PENSTOCK_GATEWAY_PUBLIC_URL"] == "http://127.0.0.1:9001/v1"
    assert environment["LANG"] == "C"
    assert environment["PENSTOCK_FLEET_KEEP_REPLICAS"] == "0", "one command ends what it started"
    assert environment[RUN_VARIABLE] == str(home.path)


def test_servers_that_run_elsewhere_are_used(home: StateDirectory) -> None:
    given = {"DATABASE_URL": "postgresql://db/penstock", "REDIS_URL": "redis://cache:6379/0"}
    config = read_config({"PENSTOCK_HOME": str(home.path), **given})
    environment = build_environment(config, home, {})
    assert {name: environment[name] for name in given} == given


def test_no_service_gets_the_owner_of_the_database(home: StateDirectory) -> None:
    config = read_config({"PENSTOCK_HOME": str(home.path)})
    services = build_environment(config, home, {"DATABASE_OWNER_URL": "postgresql://boss@db/x"})
    assert "DATABASE_OWNER_URL" not in services
    migrating = owner_environment(config, home, services)
    users = {name: urlsplit(migrating[name]).username for name in migrating if "DATABASE" in name}
    assert users == {"DATABASE_URL": "penstock_app", "DATABASE_OWNER_URL": "penstock_owner"}


APPS, OWNERS = "postgresql://app@db/penstock", "postgresql://owner@db/penstock"


@pytest.mark.parametrize(
    ("given", "owner_url", "has_one_role"),
    [
        ({}, None, False),
        ({"DATABASE_URL": APPS}, APPS, True),
        ({"DATABASE_URL": APPS, "DATABASE_OWNER_URL": OWNERS}, OWNERS, False),
    ],
)
def test_one_role_for_everything_is_warned_of(
    home: StateDirectory, given: dict[str, str], owner_url: str | None, has_one_role: bool
) -> None:
    config = read_config({"PENSTOCK_HOME": str(home.path), **given})
    assert config.has_one_role is has_one_role
    assert read_status(config)["warnings"] == ([ONE_ROLE] if has_one_role else [])
    found = owner_environment(config, home, {})["DATABASE_OWNER_URL"]
    assert owner_url in (None, found)


def test_an_owner_alone_is_refused() -> None:
    with pytest.raises(LocalError, match=r"^DATABASE_OWNER_URL is set; wanted DATABASE_URL"):
        read_config({"DATABASE_OWNER_URL": OWNERS})


def test_a_model_is_a_folder_or_a_name_on_a_hub(tmp_path: Path) -> None:
    folder = tmp_path / "My Model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert read_config({}).model_id == DEMO_MODEL_ID
    local = read_config({}, model=str(folder))
    assert (local.weights, local.model_id) == (str(folder), "my-model")
    hub = read_config({}, model="Qwen/Qwen3-0.6B")
    assert (hub.weights, hub.model_id) == ("Qwen/Qwen3-0.6B", "qwen3-0.6b")


def test_a_model_for_embeddings_is_offered_unless_nobody_wants_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    demo = read_config({})
    assert (demo.embedder_weights, demo.embedder_id) == DEMO_EMBEDDER
    assert not demo.is_embedder_named
    assert read_config({"PENSTOCK_EMBEDDING_MODEL": "none"}).embedder_weights is None
    named = read_config({"PENSTOCK_EMBEDDING_MODEL": "demo"})
    assert (named.embedder_weights, named.is_embedder_named) == (demo.embedder_weights, True)
    mine = read_config({"PENSTOCK_EMBEDDING_MODEL": str(tmp_path)})
    assert (mine.embedder_weights, mine.is_embedder_named) == (str(tmp_path), True)
    with pytest.raises(
        LocalError, match=r"^PENSTOCK_EMBEDDING_MODEL is 'nowhere'; wanted a folder"
    ):
        read_config({"PENSTOCK_EMBEDDING_MODEL": "nowhere"})


def test_a_tail_gives_whole_lines_once_and_survives_rotation(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    tail = LogTail(path)
    assert tail.new_lines() == []
    path.write_text("one\ntw")
    assert tail.new_lines() == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert tail.new_lines() == ["two"]
    path.write_text("new\n")
    assert tail.new_lines() == ["new"]


def test_later_commands_find_the_ports_of_the_last_run(tmp_path: Path) -> None:
    environ = {"PENSTOCK_HOME": str(tmp_path)}
    assert read_config(environ).ports.base == PORT_BASE
    StateDirectory(tmp_path).remember_port_base(9300)
    assert read_config(environ).ports.base == 9300
    assert read_config({**environ, "PENSTOCK_PORT_BASE": "9400"}).ports.base == 9400
