"""Journals that dead gateways left: the next gateway of the host ships them, and `penstock gateways
ship-usage` does it from any host.

A folder that nobody locks has nobody else to do it: its gateway was killed and is not started
again, or the host runs fewer of them now. Control listens to nobody else who speaks for a
gateway, so that each leaves its credential in its folder, and whoever ships its journal shows
that.
"""

import asyncio
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import structlog

from serving.config import credential as read_credential
from serving.contract.environment import url
from serving.file_lock import FileLocked
from serving.internal_http import InternalCallError
from serving.usage.claims import IdempotencyClaims
from serving.usage.clock import GatewayClock
from serving.usage.control_api import ControlApi, DatabaseIdentityCheck
from serving.usage.journal import JOURNAL, Journal
from serving.usage.journal_writer import JournalUnavailable
from serving.usage.lease_sync import LeaseReturnQueue, LeaseSync, exchange_leases
from serving.usage.leases import BillingUnreachable, LeaseManager
from serving.usage.shipper import ShipmentFailed, UsageShipper, ship_batch

log = structlog.get_logger(__name__)


CREDENTIAL_FILE = "credential"


def save_credential(folder: Path, credential: str) -> None:
    """Write it for our owner alone to read. If that fails we ship our journal ourselves."""
    draft = folder / f"{CREDENTIAL_FILE}.new"
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(credential)
        draft.replace(folder / CREDENTIAL_FILE)
    except OSError as error:
        log.warning("credential_not_left", folder=folder.name, error=str(error))


def load_credential(folder: Path) -> str | None:
    """Return what was left; None where nothing was, as by gateways of before."""
    try:
        return (folder / CREDENTIAL_FILE).read_text("ascii").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        log.warning("credential_unreadable", folder=folder.name, error=str(error))
        return None


FIRST_SECONDS = 3.0
"""Others that start with us have this long to lock their own."""
AGAIN_SECONDS = 5.0
NOT_SHIPPED = (ShipmentFailed, JournalUnavailable, BillingUnreachable, InternalCallError)
"""The errors that keep a journal from being shipped."""


class OrphanedJournals:
    """The folders beside `own`; `shipped` counts events. `lineage` is what we know of billing's."""

    def __init__(
        self,
        folders: Path,
        own: Path,
        api: ControlApi,
        lineage: DatabaseIdentityCheck,
        clock: GatewayClock,
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
    journal: Journal, folder: Path, api: ControlApi, lineage_known: str, clock: GatewayClock
) -> int:
    """Send what the journal of a gateway that does not run holds, give its leases back, and tell
    how its claims on keys ended, in its name and by its credential where it left one; return the
    number of events. Raises one of `NOT_SHIPPED`, and the rest may be sent again."""
    credential = load_credential(folder)
    billing_api = api if credential is None else api.with_credential(credential)
    lineage, returns = (
        DatabaseIdentityCheck(journal.lineage, journal.record_lineage),
        LeaseReturnQueue(),
    )
    lease_manager = LeaseManager(returns.outbox, wall=clock.now)
    poll = LeaseSync(
        partial(exchange_leases, billing_api), lease_manager, returns, journal, lineage
    )
    poll.adopt(journal.recovered_leases, goes_on=False)
    shipper = UsageShipper(
        journal, partial(ship_batch, billing_api), poll.acknowledged, lineage, wall=clock.now
    )
    events = journal.unacknowledged_count
    lineage.observe(lineage_known)
    await shipper.ship_remaining()
    await poll.return_all()
    await IdempotencyClaims(billing_api, journal).send_endings()
    if events or journal.recovered_leases:
        left = len(journal.recovered_leases)
        log.info("orphan_shipped", folder=folder.name, events=events, leases=left)
    return events


COUNTS = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM leases)"


class NotShipped(Exception):
    """Why a folder was not shipped, and what to do; nothing of it is lost."""


@dataclass(frozen=True, slots=True)
class Unshipped:
    """The usage events and leases of a folder that billing has not acknowledged."""

    events: int
    leases: int


def unshipped(folder: Path) -> Unshipped:
    """Return what is left in a folder, and change nothing. Raises NotShipped."""
    path = folder / JOURNAL
    if not path.is_file():
        raise NotShipped(f"{folder} holds no {JOURNAL}; wanted the data folder of a gateway")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return Unshipped(*db.execute(COUNTS).fetchone())
    except sqlite3.Error as error:
        raise NotShipped(f"{path} cannot be read: {error}") from error


async def ship_folder(folder: Path, environ: Mapping[str, str]) -> Unshipped:
    """Send all that is left in a folder, and return what it was. Raises NotShipped, and ConfigError
    for a missing URL of control or credential."""
    left = unshipped(folder)
    control_url = url(environ, "PENSTOCK_INTERNAL_API_URL")
    credential = load_credential(folder)
    if credential is None:
        credential = read_credential(environ, "PENSTOCK_INTERNAL_CREDENTIAL")
    clock = GatewayClock()
    try:
        journal = Journal(folder / JOURNAL, busy_seconds=0.0, now=clock.time)
    except FileLocked as error:
        raise NotShipped(f"a gateway uses {folder}, and ships it by itself") from error
    except (sqlite3.Error, OSError) as error:
        raise NotShipped(f"{folder} cannot be used: {error}") from error
    try:
        async with aiohttp.ClientSession() as session:
            api = ControlApi(session, control_url, credential, clock)
            await ship_journal(journal, folder, api, journal.lineage, clock)
    except NOT_SHIPPED as error:
        raise NotShipped(f"{error}; what is left stays in the folder: try again") from error
    finally:
        await journal.close()
    return left
