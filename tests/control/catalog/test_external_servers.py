"""Addresses of servers that operators run: which are called, and which are refused."""

import dataclasses
from ipaddress import ip_network
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from control.catalog.external_servers import check_server_url, check_unique


@pytest.fixture(autouse=True)
def no_networks(settings: Any) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, egress_allowed_networks=())


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.31:8000", "https://engines.example.com", "http://engine-1:8000",
        "http://[fd00::1]:8000/base", "http://192.168.1.5",
    ],
)  # fmt: skip
def test_servers_may_be_private(url: str) -> None:
    check_server_url(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("10.0.0.31:8000", "not a URL"),
        ("ftp://10.0.0.31", "not a URL"),
        ("http://", "not a URL"),
        ("http://10.0.0.31:99999", "not a URL"),
        ("http://[::1", "not a URL"),
        ("http://10.0.0.31 :8000", "no blanks"),
        ("http://key:secret@10.0.0.31", "user name or password"),
        ("http://10.0.0.31/v1?key=secret", r"before the \? or #"),
        ("http://10.0.0.31/#x", r"before the \? or #"),
        ("http://127.0.0.1:8000", "own host.*PENSTOCK_EGRESS_ALLOWED_NETWORKS"),
        ("http://localhost:8000", "own host"),
        ("http://[::1]:8000", "own host"),
        ("http://[::ffff:127.0.0.1]:8000", "own host"),
        ("http://2130706433:8000", "unusual form"),
        ("http://169.254.169.254/latest", "not the address of a server"),
        ("http://0.0.0.0:8000", "not the address of a server"),
        ("http://224.0.0.1:8000", "not the address of a server"),
        ("http://[fe80::1]:8000", "not the address of a server"),
    ],
)
def test_what_cannot_or_must_not_be_called_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        check_server_url(url)


def test_the_gateways_own_host_can_be_allowed(settings: Any) -> None:
    networks = (ip_network("127.0.0.0/8"),)
    settings.CONFIG = dataclasses.replace(settings.CONFIG, egress_allowed_networks=networks)
    check_server_url("http://127.0.0.1:8000")
    check_server_url("http://localhost:8000")


def test_one_server_in_two_spellings_is_the_same() -> None:
    for other in ("http://ENGINE:80", "http://engine/", "http://engine.:80"):
        with pytest.raises(ValidationError, match="listed already"):
            check_unique([other], taken=["http://engine"])
    check_unique(["https://engine", "http://engine:81"], taken=["http://engine"])
