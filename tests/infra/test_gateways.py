"""Several gateways of one host: one socket, and to each a name, a folder and a port of its own."""

import re
import socket
from pathlib import Path

import pytest

from infra.local.config import GATEWAY_COUNT_MAX, LocalError, read_config
from infra.local.preflight import check_ports
from infra.local.processes import STOP_ORDER, gateway_processes, in_stop_order
from infra.local.state_dir import StateDirectory
from tests.fixtures.environment import free_port_base


def test_gateways_end_first_and_by_their_number() -> None:
    running = {*STOP_ORDER, "gateway-2", "gateway-10"}
    assert in_stop_order(running) == ["gateway", "gateway-2", "gateway-10", *STOP_ORDER[1:]]


@pytest.mark.parametrize("wanted", ["0", "-1", "two", "1.5", str(GATEWAY_COUNT_MAX + 1), "٢"])
def test_a_number_that_makes_no_sense_is_refused(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(LocalError, match="PENSTOCK_GATEWAYS is"):
        read_config({"PENSTOCK_HOME": str(tmp_path), "PENSTOCK_GATEWAYS": wanted})


def test_each_has_a_folder_and_a_port_of_its_own_and_all_have_one_socket(tmp_path: Path) -> None:
    config = read_config({"PENSTOCK_HOME": str(tmp_path)}, gateways=str(GATEWAY_COUNT_MAX))
    told = [" ".join(each.command) for each in gateway_processes(config, StateDirectory(tmp_path))]
    folders = {re.findall(r"PENSTOCK_GATEWAY_DATA_DIR=(\S+)", one)[0] for one in told}
    ports = {int(re.findall(r"OPERATOR_PORT=(\d+)", one)[0]) for one in told}
    assert len(folders) == GATEWAY_COUNT_MAX
    assert ports == set(config.ports.gateway_operators)
    assert len(set(config.ports.named().values()) | set(config.ports.replicas)) == (
        len(config.ports.named()) + len(config.ports.replicas)
    )
    credentials = {re.findall(r"CREDENTIAL_FILE=(\S+)", one)[0] for one in told}
    assert len(credentials) == GATEWAY_COUNT_MAX
    for secret in ("PENSTOCK_INTERNAL_SECRET", "DATABASE_URL", "STRIPE_SECRET_KEY"):
        assert all(f"--unset={secret} " in one for one in told)


def test_a_port_that_a_second_gateway_needs_is_looked_at_too(tmp_path: Path) -> None:
    base = str(free_port_base())
    config = read_config({"PENSTOCK_HOME": str(tmp_path), "PENSTOCK_PORT_BASE": base}, gateways="2")
    check_ports(config)
    port = config.ports.gateway_operators[1]
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(LocalError, match=rf"taken: port {port} \(gateway-2, operator\)"),
    ):
        check_ports(config)
