"""The versions of Python, PostgreSQL and Redis that Penstock needs, and what to say of older ones.

`pyproject.toml` and `infra/local/setup.py`, which can import nothing, repeat Python's. Each
function returns None for a version that is recent enough, or whose number nobody can read, and
otherwise the rest of a sentence that begins with the name of a setting.
"""

import re
from collections.abc import Sequence
from typing import Any

PYTHON_MIN = (3, 11)
POSTGRESQL_MIN = 15
REDIS_MIN = (6, 2)


def unsupported_python(version: tuple[int, ...]) -> str | None:
    """Judge a Python by `sys.version_info`."""
    if version >= PYTHON_MIN:
        return None
    found, wanted = (".".join(map(str, each[:2])) for each in (version, PYTHON_MIN))
    return f"is {found}; Penstock needs {wanted} or later: install it under a newer Python"


def unsupported_postgresql(version: str) -> str | None:
    """Judge a server by its parameter `server_version`: `15.18 (Debian 15.18-0+deb12u1)`."""
    number = re.match(r"(\d+)[\w.]*", version)
    if number is None or int(number[1]) >= POSTGRESQL_MIN:
        return None
    return (
        f"names PostgreSQL {number[0]}; Penstock needs {POSTGRESQL_MIN} or later: upgrade that"
        " server, or name another"
    )


def unsupported_redis(hello: Sequence[Any] | None) -> str | None:
    """Judge a server by its reply to HELLO by protocol 2: names and values in turn, or None where
    it doesn't know the command, which is new in Redis 6.0. Every Valkey is recent enough."""
    if hello is None:
        return _old_redis("before 6.0")
    pairs = zip(hello[::2], hello[1::2], strict=True)
    said = {_text(name): _text(value) for name, value in pairs}
    number = re.match(r"(\d+)\.(\d+)", said.get("version", ""))
    if number is None or said.get("server") == "valkey":
        return None
    is_recent = (int(number[1]), int(number[2])) >= REDIS_MIN
    return None if is_recent else _old_redis(said["version"])


def _old_redis(found: str) -> str:
    wanted = ".".join(map(str, REDIS_MIN))
    return (
        f"names Redis {found}; Penstock needs Redis {wanted} or later, or Valkey: upgrade that"
        " server, or name another"
    )


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
