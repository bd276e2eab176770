"""Versions that are too old are refused in one sentence; what can't be read is not judged."""

import tomllib
from typing import Any

import pytest

from infra.local import setup
from infra.local.config import ROOT
from serving.contract.required_versions import (
    PYTHON_MIN,
    unsupported_postgresql,
    unsupported_python,
    unsupported_redis,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("version", ["15.0", "15.18 (Debian 15.18-0+deb12u1)", "18beta1", "", "x"])
def test_a_recent_postgresql_is_accepted(version: str) -> None:
    assert unsupported_postgresql(version) is None


@pytest.mark.parametrize(
    ("version", "found"), [("14.11 (Debian 14.11-1)", "14.11"), ("9.6.24", "9.6.24")]
)
def test_an_old_postgresql_is_refused(version: str, found: str) -> None:
    assert unsupported_postgresql(version) == (
        f"names PostgreSQL {found}; Penstock needs 15 or later: upgrade that server, or name"
        " another"
    )


@pytest.mark.parametrize(
    "hello",
    [
        [b"server", b"redis", b"version", b"6.2.14", b"proto", 2],
        ["server", "redis", "version", "7.0.15"],
        [b"server", b"valkey", b"version", b"1.0.0"],
        [b"server", b"else"],
    ],
)
def test_a_recent_redis_is_accepted(hello: list[Any]) -> None:
    assert unsupported_redis(hello) is None


@pytest.mark.parametrize(
    ("hello", "found"),
    [
        ([b"server", b"redis", b"version", b"6.0.16", b"proto", 2], "6.0.16"),
        (["server", "redis", "version", "6.1.240"], "6.1.240"),
        (None, "before 6.0"),
    ],
)
def test_an_old_redis_is_refused(hello: list[Any] | None, found: str) -> None:
    assert unsupported_redis(hello) == (
        f"names Redis {found}; Penstock needs Redis 6.2 or later, or Valkey: upgrade that server,"
        " or name another"
    )


def test_python_has_one_lowest_version() -> None:
    assert unsupported_python((*PYTHON_MIN, 0)) is None
    assert unsupported_python((3, 10)) == (
        "is 3.10; Penstock needs 3.11 or later: install it under a newer Python"
    )
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert required == f">={PYTHON_MIN[0]}.{PYTHON_MIN[1]}"
    assert setup.PYTHON_MIN == PYTHON_MIN
