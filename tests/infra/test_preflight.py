"""What is missing is told before anything starts, in one line."""

import socket
from collections import namedtuple
from pathlib import Path

import pytest

from infra.local import preflight
from infra.local.config import LocalError, Ports, read_config
from tests.fixtures.environment import free_port, free_port_base

pytestmark = pytest.mark.unit

Usage = namedtuple("Usage", "total used free")


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: Usage(10**12, 0, 10**9))
    with pytest.raises(LocalError, match=r"has 1\.0 GB of disk free; wanted 3 GB"):
        preflight.check_disk(tmp_path / "not" / "there" / "yet")


def test_too_little_memory_is_named_with_a_way_out() -> None:
    with pytest.raises(LocalError, match=r"2\.0 GB of memory .*PENSTOCK_ENGINE=simulated"):
        preflight.check_memory(2 * 10**9)


def test_an_old_python_is_named() -> None:
    with pytest.raises(LocalError, match=r"Python is 3\.10; Penstock needs 3\.11 or later"):
        preflight.check_python((3, 10))


def test_every_taken_port_is_named() -> None:
    base = free_port_base()
    config = read_config({"PENSTOCK_PORT_BASE": str(base), "PENSTOCK_ENGINE": "simulated"})
    preflight.check_ports(config)
    wanted = rf"{base} \(console\), {base + 5} \(PostgreSQL\)"
    with (
        socket.create_server(("127.0.0.1", base)),
        socket.create_server(("127.0.0.1", base + 5)),
        pytest.raises(LocalError, match=wanted),
    ):
        preflight.check_ports(config)


def test_ports_of_servers_that_run_elsewhere_may_be_taken() -> None:
    base = free_port_base()
    elsewhere = {"DATABASE_URL": "postgresql://db/penstock", "REDIS_URL": "redis://cache"}
    config = read_config({"PENSTOCK_PORT_BASE": str(base), **elsewhere})
    with socket.create_server(("127.0.0.1", base + 5)):
        preflight.check_ports(config)


def test_a_server_that_does_not_answer_is_named() -> None:
    port = free_port()
    with pytest.raises(LocalError, match=r"^DATABASE_URL: .*refused"):
        preflight.check_servers(
            read_config({"DATABASE_URL": f"postgresql://127.0.0.1:{port}/penstock"})
        )
    with pytest.raises(LocalError, match=r"^REDIS_URL: .*refused"):
        preflight.check_servers(read_config({"REDIS_URL": f"redis://127.0.0.1:{port}"}))


def test_no_two_processes_share_a_port() -> None:
    ports = Ports(8700)
    fixed = list(ports.named().values())
    assert len(set(fixed)) == len(fixed)
    assert not set(fixed) & set(ports.replicas)
