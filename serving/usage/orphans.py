"""Journals that dead gateways of this host left: whoever starts next ships them.

A folder that nobody locks has nobody else to do it: its gateway was killed and is not started
again, or the host runs fewer of them now.
"""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import structlog

from serving.file_lock import FileLocked
from serving.internal_http import InternalCallError
from serving.usage import left_credential
from serving.usage.billing import Billing
from serving.usage.claims import Claims
from serving.usage.clock import Clock
from serving.usage.internal import InternalApi
from serving.usage.journal import JOURNAL, Journal
from serving.usage.lineage import Lineage
from serving.usage.outbox import Returns
from serving.usage.poll import Poll
from serving.usage.ship import ShipmentFailed, Shipper
from serving.usage.treasury import BillingUnreachable, Treasury
from serving.usage.writer import JournalUnavailable

log = structlog.get_logger(__name__)

FIRST_SECONDS = 3.0
"""How long others that start with us have to lock their own."""
AGAIN_SECONDS = 5.0
NOT_SHIPPED = (ShipmentFailed, JournalUnavailable, BillingUnreachable, InternalCallError)
"""What keeps a journal from being shipped."""


class Orphans:
    """The folders beside `own`; `shipped` counts events. `lineage` is what we know of billing's."""

    def __init__(
        self, folders: Path, own: Path, api: InternalApi, lineage: Lineage, clock: Clock
    ) -> None:
        self.shipped = 0
        self._folders = folders
        self._own = own.resolve()
        self._api = api
        self._lineage = lineage
        self._clock = clock

    async def run(self) -> None:
        """Ship each until it is empty or somebody uses it again. Between two tries it is free, so
        that its own gateway may come back."""
        await asyncio.sleep(FIRST_SECONDS)
        left = list(self._others())
        while left:
            left = [folder for folder in left if not await self._is_done_with(folder)]
            if left:
                await asyncio.sleep(AGAIN_SECONDS)

    def _others(self) -> Iterator[Path]:
        for folder in sorted(self._folders.iterdir()):
            if folder.resolve() != self._own and (folder / JOURNAL).is_file():
                yield folder

    async def _is_done_with(self, folder: Path) -> bool:
        try:
            journal = await asyncio.to_thread(self._open, folder, asyncio.get_running_loop())
        except FileLocked:
            return True
        except (sqlite3.Error, OSError) as error:
            log.warning("orphan_unusable", folder=folder.name, error=str(error))
            return False
        try:
            self.shipped += await ship_journal(
                journal, folder, self._api, self._lineage.known, self._clock
            )
        except NOT_SHIPPED as error:
            log.warning("orphan_not_shipped", folder=folder.name, error=str(error))
            return False
        finally:
            await journal.close()
        return True

    def _open(self, folder: Path, loop: asyncio.AbstractEventLoop) -> Journal:
        return Journal(folder / JOURNAL, busy_seconds=0.0, now=self._clock.time, loop=loop)


async def ship_journal(
    journal: Journal, folder: Path, api: InternalApi, lineage_known: str, clock: Clock
) -> int:
    """Send what the journal of a gateway that does not run holds, give its leases back, and tell
    how its claims on keys ended, in its name and by its credential where it left one; return the
    number of events. Raises one of `NOT_SHIPPED`, and the rest may be sent again."""
    credential = left_credential.found(folder)
    billing_api = api if credential is None else api.showing(credential)
    billing = Billing(billing_api)
    lineage, returns = Lineage(journal.lineage, journal.note_lineage), Returns()
    treasury = Treasury(returns.outbox, wall=clock.now)
    poll = Poll(billing.leases, treasury, returns, journal, lineage)
    poll.adopt(journal.left_leases, goes_on=False)
    shipper = Shipper(journal, billing.usage_events, poll.acknowledged, lineage, wall=clock.now)
    events = journal.done_rows
    lineage.hear(lineage_known)
    await shipper.ship_the_rest()
    await poll.give_all_back()
    await Claims(billing_api, journal).tell()
    if events or journal.left_leases:
        left = len(journal.left_leases)
        log.info("orphan_shipped", folder=folder.name, events=events, leases=left)
    return events
