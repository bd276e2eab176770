"""`penstock init --production`: what it writes starts each process, and is fit for production."""

import shlex
import stat
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from control.config import ControlConfig
from control.management.production import flaws
from infra import cli, production
from infra.production import Choices, LocalError, Secrets, configuration, write_files
from serving.contract.credential import ServiceIdentity, callers_of
from serving.fleet.config import read_config as read_fleet_config
from serving.gateway.config import GatewayConfig
from tests.fixtures.redis_server import running_redis

pytestmark = pytest.mark.unit
NEAR = Choices("example.com", ("eu-1", "eu-2"))
FAR = Choices(
    "example.com", ("eu-1",), "db.internal", "fd00::6", "10.0.0.5", "10.0.0.0/24,fd00::/64"
)
GPU_HOST = replace(FAR, fleet_address="10.0.0.6")


def variables(text: str) -> dict[str, str]:
    """Return what a shell reads of a file."""
    return dict(word.split("=", 1) for word in shlex.split(text, comments=True))


def edited(text: str) -> dict[str, str]:
    """Return what a shell reads of control's file, once its mail server and address are set."""
    for name in ("EMAIL_URL", "PENSTOCK_SUPPORT_EMAIL"):
        assert f"# {name}=" in text
        text = text.replace(f"# {name}=", f"{name}=")
    return variables(text)


@pytest.mark.parametrize(
    "choices", [NEAR, FAR, GPU_HOST], ids=["one host", "several hosts", "a GPU host"]
)
def test_what_is_written_starts_each_process_and_has_no_flaw(
    choices: Choices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(production, "DATA_DIR", str(tmp_path))
    (tmp_path / "gateways").mkdir()
    files = configuration(choices)
    control = edited(files["control.env"])
    assert flaws(ControlConfig.from_environment(control)) == []
    assert flaws(ControlConfig.from_environment(control | variables(files["owner.env"]))) == []
    fleet = variables(files["fleet.env"])
    host = choices.fleet_address or choices.private_address
    assert read_fleet_config(fleet).host == host
    for name in choices.gateways:
        gateway = GatewayConfig.from_environment(variables(files[f"gateway-{name}.env"]))
        shown = f"Bearer {gateway.credential}"
        assert callers_of(control).find(shown) == ServiceIdentity("gateway", name)
        assert gateway.key_peppers[0] == control["PENSTOCK_KEY_PEPPER"]
        assert gateway.operator_host == host
        for address, port in ((choices.private_address, 8702), (host, 8704)):
            url = f"http://{address}:{port}"
            found = {url} & {*variables(files[f"gateway-{name}.env"]).values()}
            assert found, url
            assert url in (fleet if port == 8702 else control).values()


def test_gateways_of_a_host_share_its_folder_and_salt_and_no_port_or_secret_of_control() -> None:
    files = configuration(NEAR)
    first, second = (variables(files[f"gateway-{name}.env"]) for name in NEAR.gateways)
    alike = {name for name in first if first[name] == second[name]}
    assert {"PENSTOCK_SALT_SECRET", "PENSTOCK_GATEWAYS_DATA_DIR"} <= alike
    assert alike.isdisjoint({"PENSTOCK_GATEWAY_PORT", "PENSTOCK_GATEWAY_OPERATOR_PORT"})
    assert {"DATABASE_URL", "PENSTOCK_INTERNAL_SECRET", "PENSTOCK_ENCRYPTION_KEY"}.isdisjoint(first)
    assert variables(files["control.env"])["PENSTOCK_INTERNAL_SECRET"] not in str(first)


def test_each_secret_is_new() -> None:
    made = [getattr(Secrets(), field.name) for _ in range(2) for field in fields(Secrets)]
    assert len(set(made)) == len(made)


@pytest.mark.integration
def test_redis_takes_its_users_and_gives_gateways_their_keys_alone(tmp_path: Path) -> None:
    files = configuration(NEAR)
    write_files(tmp_path / "etc", files)
    control, gateway = (
        urlsplit(variables(files[name])["REDIS_URL"])
        for name in ("control.env", "gateway-eu-1.env")
    )
    acl_file = tmp_path / "etc/redis.acl"
    with running_redis(tmp_path, acl_file=acl_file, password=control.password) as server:
        assert server.client.rpush("celery", "a task")
        stranger = redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0))
        with closing(stranger), pytest.raises(redis.exceptions.AuthenticationError):
            stranger.ping()
        login = {"username": gateway.username, "password": gateway.password}
        with closing(redis.Redis(port=server.port, **login)) as client:
            assert client.set("{limits}:one", 1)
            assert client.publish("penstock:prefixes:one", "news") == 0
            for refused in (
                lambda: client.lrange("celery", 0, -1),
                lambda: client.publish("news", "news"),
                lambda: client.config_get("*"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    refused()


def test_files_are_their_owners_alone_and_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    write_files(folder, configuration(NEAR))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    before = {path: path.read_text() for path in folder.iterdir()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in before} == {0o600}
    (folder / "owner.env").unlink()
    with pytest.raises(LocalError, match=r"control.env.*nothing was written"):
        write_files(folder, configuration(NEAR))
    assert not (folder / "owner.env").exists()
    assert all(path.read_text() == text for path, text in before.items() if path.exists())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--domain", "localhost"], "--domain is 'localhost'; wanted a domain such as example.com"),
        (["--domain", "a.b", "--gateway", "EU"], "--gateway is 'EU'; wanted lowercase letters"),
        (["--domain", "a.b", "--redis-host", "x:6379"], "--redis-host is 'x:6379'; wanted a host"),
        (["--domain", "a.b", "--trusted-proxies", "lb"], "--trusted-proxies is 'lb'; wanted"),
    ],
)
def test_a_choice_that_is_none_is_named(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / "etc"
    monkeypatch.setattr("sys.argv", ["penstock", "init", "--production", str(folder), *options])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    assert words in capsys.readouterr().err
    assert not folder.exists()
