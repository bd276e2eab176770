"""`penstock gateways ship-usage`: the usage that a gateway which does not come back left in its
folder is sent to billing from any host."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from serving.config import credential as read_credential
from serving.contract.environment import url
from serving.file_lock import FileLocked
from serving.usage import left_credential
from serving.usage.clock import Clock
from serving.usage.internal import InternalApi
from serving.usage.journal import JOURNAL, Journal
from serving.usage.orphans import NOT_SHIPPED, ship_journal

COUNTS = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM leases)"


class NotShipped(Exception):
    """Why a folder was not shipped, and what to do; nothing of it is lost."""


@dataclass(frozen=True, slots=True)
class Unshipped:
    """What a folder holds that billing has not acknowledged: usage events and leases."""

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
    credential = left_credential.found(folder)
    if credential is None:
        credential = read_credential(environ, "PENSTOCK_INTERNAL_CREDENTIAL")
    clock = Clock()
    try:
        journal = Journal(folder / JOURNAL, busy_seconds=0.0, now=clock.time)
    except FileLocked as error:
        raise NotShipped(f"a gateway uses {folder}, and ships it by itself") from error
    except (sqlite3.Error, OSError) as error:
        raise NotShipped(f"{folder} cannot be used: {error}") from error
    try:
        async with aiohttp.ClientSession() as session:
            api = InternalApi(session, control_url, credential, clock)
            await ship_journal(journal, folder, api, journal.lineage, clock)
    except NOT_SHIPPED as error:
        raise NotShipped(f"{error}; what is left stays in the folder: try again") from error
    finally:
        await journal.close()
    return left
