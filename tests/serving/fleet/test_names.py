"""A gateway's demand is its own: nobody with another name reports for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from serving.contract.codec import encode
from serving.contract.credential import ServiceAuthenticator, ServiceIdentity, issue
from serving.contract.slot_shares import DemandReport
from serving.fleet import slot_shares
from serving.fleet.config import FleetConfig
from serving.fleet.grammar_service import GrammarService
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.server import FleetServer
from serving.fleet.slot_shares import SlotAllocator
from serving.fleet.state_store import FleetStore

ROOT = "a secret"


@asynccontextmanager
async def listening(folder: Path, shares: SlotAllocator) -> AsyncIterator[str]:
    """Answer on a free port; yields where demand is told."""
    callers = ServiceAuthenticator((ROOT,))
    config = FleetConfig("http://control", "", callers, "127.0.0.1", 1, folder, 20_000, 1)
    async with aiohttp.ClientSession() as session:
        fleet = FleetReconciler(config, {}, FleetStore(folder), session)
        fleet.own(1)
        server = FleetServer(
            fleet, CollectorRegistry(), callers, GrammarService({}, judges_max=1), shares
        )
        try:
            yield f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}/demand"
        finally:
            await server.stop()


async def tell(url: str, report: DemandReport, caller: ServiceIdentity) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {issue(ROOT, caller)}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=encode(report), headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_nobody_speaks_for_a_gateway_of_another_name(tmp_path: Path) -> None:
    made = SlotAllocator(epoch=1)
    first, second, other = (
        ServiceIdentity("gateway", name, number) for name, number in (("a", 1), ("a", 2), ("b", 1))
    )
    async with listening(tmp_path, made) as url:
        assert (await tell(url, DemandReport("gw_a", 1, {}), first))[0] == 200
        leaving = DemandReport("gw_a", 9, {}, is_leaving=True)
        assert await tell(url, leaving, other) == (403, '{"error": "gw_a is the gateway a, not b"}')
        assert made.gateways["gw_a"].number == 1
        assert (await tell(url, DemandReport("gw_b", 1, {}), other))[0] == 200
        assert (await tell(url, leaving, second))[0] == 200
        assert list(made.gateways) == ["gw_b"]
        assert (await tell(url, DemandReport("gw_a", 1, {}), other))[0] == 403


def test_names_are_kept_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_shares, "NAMES_KEPT_MAX", 3)
    made = SlotAllocator(epoch=1)
    for number in range(3):
        made.name_of(f"gw_{number}", "a")
        made.report(DemandReport(f"gw_{number}", 1, {}), {}, 0.0)
    for number in range(100):
        made.name_of(f"gone_{number}", "b")
    assert len(made._names) == 3
    assert {made.name_of(f"gw_{number}", "b") for number in range(3)} == {"a"}
