"""What a gateway holds in memory follows the limit of its cgroup."""

import os
from pathlib import Path

import pytest

from serving.gateway import gateway
from serving.gateway.config import MemoryBounds, memory_bounds, memory_limit_bytes
from tests.fixtures.gateway import running_stack

MIB = 1024**2
MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
UNLIMITED_V1 = "9223372036854771712\n"
V1 = "9:name=systemd:/\n4:cpu,memory:/system/gateway\n0::/\n"


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/system/gateway\n", {"system/gateway/memory.max": "67108864\n"}, 64 * MIB),
        ("0::/system/gateway\n", {"system/gateway/memory.max": "max\n"}, MACHINE),
        (
            "0::/system/gateway\n",
            {"system/memory.max": "33554432\n", "system/gateway/memory.max": "67108864\n"},
            32 * MIB,
        ),
        ("0::/system/gateway\n", {"memory.max": "67108864\n"}, 64 * MIB),
        ("0::/../of/host\n", {"memory.max": "67108864\n"}, 64 * MIB),
        (V1, {"memory/system/gateway/memory.limit_in_bytes": "67108864\n"}, 64 * MIB),
        (V1, {"memory/memory.limit_in_bytes": "67108864\n"}, 64 * MIB),
        (V1, {"memory/system/gateway/memory.limit_in_bytes": UNLIMITED_V1}, MACHINE),
        (V1, {}, MACHINE),
        ("", {}, MACHINE),
        (None, {}, MACHINE),
    ],
)
def test_the_lowest_limit_of_all_cgroups_counts(
    tmp_path: Path, own: str | None, files: dict[str, str], limit: int
) -> None:
    cgroups, of_process = tmp_path / "cgroup", tmp_path / "own"
    if own is not None:
        of_process.write_text(own)
    for name, text in files.items():
        file = cgroups / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert memory_limit_bytes(cgroups, of_process) == limit


def test_half_of_the_limit_may_be_held_up_to_the_usual_bounds() -> None:
    assert memory_bounds(512 * MIB) == MemoryBounds(128 * MIB, 64 * MIB, 64 * MIB)
    usual = MemoryBounds(512 * MIB, 256 * MIB, 256 * MIB)
    assert memory_bounds(2048 * MIB) == memory_bounds(10**12) == usual


async def test_a_gateway_holds_what_its_limit_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "memory_limit_bytes", lambda: 512 * MIB)
    async with running_stack(tmp_path) as stack:
        app = stack.gateway.app
        held = (
            app.inference.body_memory.size_max,
            app.write_memory.bytes_max,
            app.inference.idempotency._recordings.size_max,
        )
        assert held == (128 * MIB, 64 * MIB, 64 * MIB)
        assert b"penstock_gateway_memory_limit_bytes 5.36870912e+08" in (
            await stack.operator_app.metrics()
        )
