"""A fleet that is told to end does, whatever happens at that very moment."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serving.contract.credential import ServiceAuthenticator
from serving.fleet.config import FleetConfig
from serving.fleet.reconciler import FleetReconciler
from serving.fleet.state_store import FleetStore


async def test_an_end_told_beside_news_is_not_forgotten(tmp_path: Path) -> None:
    session: Any = None
    config = FleetConfig(
        "http://control", "", ServiceAuthenticator(()), "x", 1, tmp_path, 20_000, 1
    )
    fleet = FleetReconciler(config, {}, FleetStore(tmp_path), session)
    loop = asyncio.create_task(fleet.reconcile_forever())
    await asyncio.sleep(0)
    fleet._wake.set()
    await asyncio.sleep(0)
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(loop, 60)
