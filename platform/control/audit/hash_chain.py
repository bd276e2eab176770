"""The hash chain of audit events: each link has a digest over its event and over the digest of the
link before, so that a changed, removed or inserted event is detected.

An event enters the chain within seconds after its commit, in the order in which events become
visible, so that no writer waits for another (decision 0027).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db import connection, transaction

from control.audit.models import ChainLink, ChainVerification, UnchainedEvent
from control.db.privileges import UNLIMITED_TRANSACTION

PAGE_DEEDS = 1_000
FAULTS_MAX = 20
GENESIS = b""
"""The digest before the first link."""

CONTENT = """sha256(convert_to(jsonb_build_array(deed.id, deed.organization_id, deed.actor_kind,
    deed.actor_id, deed.actor_name, deed.action, deed.target_kind, deed.target_id,
    deed.target_name, deed.details,
    host(deed.address), deed.request_id,
    to_char(deed.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'))::text, 'UTF8'))"""
"""The digest of an audit event by itself."""

LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('control.audit.hash_chain'))"
"""Only one transaction at a time extends the chain; a second has nothing to wait for."""

WAITING = f"""
/* The deeds that wait, in the order of their ids. */
SELECT deed.id, {CONTENT} FROM audit_unchained_event AS waiting
JOIN audit_event AS deed ON deed.id = waiting.deed_id ORDER BY deed.id LIMIT %s
"""  # noqa: S608 -- constants of this module

PATIENTLY = f"{UNLIMITED_TRANSACTION}; SET LOCAL statement_timeout = '10min'"

BROKEN = f"""
/* Links that do not follow from their deed and the link before, or leave a gap. */
SELECT position, deed_id, position <> expected AS is_gap FROM (
    SELECT link.position, link.deed_id, link.digest, row_number() OVER chain AS expected,
        sha256(
            coalesce(lag(link.digest) OVER chain, ''::bytea) || coalesce({CONTENT}, ''::bytea)
        ) AS wanted
    FROM audit_chain_link AS link LEFT JOIN audit_event AS deed ON deed.id = link.deed_id
    WINDOW chain AS (ORDER BY link.position)
) AS each WHERE position <> expected OR digest IS DISTINCT FROM wanted
ORDER BY position LIMIT %s
"""  # noqa: S608 -- constants of this module

LOOSE = """
/* Deeds that are neither in the chain nor wait for it. */
SELECT deed.id FROM audit_event AS deed
WHERE NOT EXISTS (SELECT FROM audit_chain_link AS link WHERE link.deed_id = deed.id)
    AND NOT EXISTS (SELECT FROM audit_unchained_event AS waiting WHERE waiting.deed_id = deed.id)
ORDER BY deed.id LIMIT %s
"""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The last link of the chain: an operator notes it elsewhere, to check later that it is still
    there."""

    position: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.position}:{self.digest.hex()}"


def chain_events(*, pages_max: int = 100) -> int:
    """Put unchained audit events into the chain, at most `pages_max` pages; return their number."""
    chained = 0
    for _ in range(pages_max):
        count = _chain_page()
        chained += count
        if count < PAGE_DEEDS:
            break
    return chained


@transaction.atomic
def _chain_page() -> int:
    with connection.cursor() as cursor:
        cursor.execute(LOCK)
        if not cursor.fetchone()[0]:
            return 0
        cursor.execute(WAITING, [PAGE_DEEDS])
        rows = [(deed_id, bytes(content)) for deed_id, content in cursor.fetchall()]
    ChainLink.objects.bulk_create(_links(head(), rows))
    UnchainedEvent.objects.filter(deed_id__in=[deed_id for deed_id, _ in rows]).delete()
    return len(rows)


def _links(before: ChainHead, rows: Sequence[tuple[int, bytes]]) -> list[ChainLink]:
    links, digest = [], before.digest
    for position, (deed_id, content) in enumerate(rows, start=before.position + 1):
        digest = hashlib.sha256(digest + content).digest()
        links.append(ChainLink(position=position, deed_id=deed_id, digest=digest))
    return links


def head() -> ChainHead:
    last = ChainLink.objects.order_by("-position").first()
    return ChainHead(last.position, bytes(last.digest)) if last else ChainHead(0, GENESIS)


def verify_chain(*, now: datetime, noted: Sequence[ChainHead] = ()) -> ChainVerification:
    """Verify the whole chain, that it still holds the heads of the last fault-free verification and
    of `noted`, and that no audit event is outside it. Faults are logged and stored."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(PATIENTLY)
        end = head()
        found = _faults(noted)
    proof = ChainVerification.objects.create(
        made_at=now, position=end.position, digest=end.digest, faults=found
    )
    if found:
        logger.error("audit_chain_broken", faults=found, head=str(end))
    else:
        logger.info("audit_chain_verified", head=str(end))
    return proof


def _faults(noted: Sequence[ChainHead]) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(BROKEN, [FAULTS_MAX])
        found = [
            f"link {position} (deed {deed_id}) {'leaves a gap' if is_gap else 'is not as sealed'}"
            for position, deed_id, is_gap in cursor.fetchall()
        ]
        cursor.execute(LOOSE, [FAULTS_MAX])
        found += [f"deed {deed_id} is not in the chain" for (deed_id,) in cursor.fetchall()]
    return found + [f"the chain does not hold {one} any more" for one in _lost(noted)]


def _lost(noted: Sequence[ChainHead]) -> list[ChainHead]:
    """Return the heads that the chain no longer holds: its end was cut off, or all of it was
    rewritten."""
    last = ChainVerification.objects.filter(faults=[]).first()
    seen = list(noted)
    if last is not None:
        seen.append(ChainHead(last.position, bytes(last.digest)))
    links = ChainLink.objects.filter(position__in=[one.position for one in seen])
    found = dict(links.values_list("position", "digest"))
    return [
        one for one in seen if one.position and bytes(found.get(one.position, b"")) != one.digest
    ]
