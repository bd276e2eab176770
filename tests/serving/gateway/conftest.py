"""A running gateway for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.gateway import attempt, count_tokens, parse_offload
from serving.offload import pool
from serving.usage import claims, leases
from tests.fixtures.gateway import Stack, running_stack

PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have gateways of this process wait long for what comes in milliseconds, unless the machine is
    busy; a test of what comes too late shortens the wait for that alone."""
    monkeypatch.setattr(leases, "WAIT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(claims, "CLAIM_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(claims, "KEEP_TRY_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(claims, "KEEP_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(attempt, "LINGER_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(count_tokens, "COUNT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(parse_offload, "SECONDS_MAX", PATIENCE_SECONDS)
    monkeypatch.setattr(parse_offload, "WAIT_SECONDS_MAX", PATIENCE_SECONDS)
    monkeypatch.setattr(pool, "START_WAIT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """One tenant with credit, one model, one simulated replica."""
    async with running_stack(tmp_path) as running:
        yield running
