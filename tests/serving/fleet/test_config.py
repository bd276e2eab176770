"""A bad setting is named in one line."""

from pathlib import Path

import pytest

from serving.contract.tiers import DEFAULT_GUARANTEES
from serving.fleet.config import read_config

GOOD = {
    "PENSTOCK_INTERNAL_API_URL": "http://127.0.0.1:8702/",
    "PENSTOCK_INTERNAL_SECRET": "a-secret-of-the-fleet",
    "PENSTOCK_FLEET_DATA_DIR": "fleet",
}


def test_reads_what_is_given_and_defaults_the_rest() -> None:
    config = read_config(GOOD | {"PENSTOCK_FLEET_STUCK_SECONDS": "2.5"})
    assert config.control_url == "http://127.0.0.1:8702"
    assert config.directory == Path("fleet").resolve()
    assert (config.timings.stuck_seconds, config.timings.poll_seconds) == (2.5, 1.0)
    assert config.keep_replicas
    assert config.tier_guarantees == DEFAULT_GUARANTEES
    assert not read_config(GOOD | {"PENSTOCK_FLEET_KEEP_REPLICAS": "0"}).keep_replicas


def test_a_folder_has_one_name_however_it_is_reached(tmp_path: Path) -> None:
    """Processes of replicas are found by it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for name in ("real", "link", "link/../real"):
        config = read_config(GOOD | {"PENSTOCK_FLEET_DATA_DIR": str(tmp_path / name)})
        assert config.directory == tmp_path / "real"


def test_nodes_are_reached_where_they_listen_unless_told_otherwise() -> None:
    node = read_config(GOOD | {"PENSTOCK_NODE_HOST": "10.0.0.6"}).node
    assert (node.host, node.address) == ("10.0.0.6", "10.0.0.6")
    with pytest.raises(ValueError, match="PENSTOCK_NODE_ADDRESS"):
        read_config(GOOD | {"PENSTOCK_NODE_HOST": "::"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_INTERNAL_SECRET", ""),
        ("PENSTOCK_INTERNAL_API_URL", ""),
        ("PENSTOCK_FLEET_PORT", "eighty"),
        ("PENSTOCK_FLEET_PORT", "70000"),
        ("PENSTOCK_REPLICA_PORT_BASE", "65535"),
        ("PENSTOCK_FLEET_KEEP_REPLICAS", "yes"),
        ("PENSTOCK_FLEET_STUCK_SECONDS", "soon"),
        ("PENSTOCK_FLEET_STUCK_SECONDS", "0"),
        ("PENSTOCK_LOG_FORMAT", "xml"),
        ("PENSTOCK_TIER_GUARANTEES", "priority=100"),
        ("PENSTOCK_NODE_ADDRESS", "::"),
        ("PENSTOCK_NODE_TLS_KEY", "key.pem"),
    ],
)
def test_a_bad_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        read_config(GOOD | {name: value})
