"""Control's idempotency keys without a database; the equal of the real ones."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from serving.contract.idempotency import (
    CLAIMS_MAX,
    HOURS_KEPT,
    KEPT_BYTES_MAX,
    Answered,
    Claim,
    Claimed,
    ClaimReply,
    Ended,
    Endings,
    EndingsReply,
    KeepAnswer,
    KeepReply,
    NoRoom,
    OtherRequest,
    Running,
    TurnedOff,
    Verdict,
)

Key = tuple[str, str]


@dataclass
class Kept:
    """One claim, with its answer once there is one."""

    claim: Claim
    at: datetime
    is_kept: bool = False
    is_completed: bool = False
    sealed: bytes | None = None


@dataclass
class FakeKeys:
    """Claims by organization and key digest. `off` organizations take none."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    claims: dict[Key, Kept] = field(default_factory=dict)
    early: set[str] = field(default_factory=set)
    off: set[str] = field(default_factory=set)
    asked: list[Claim] = field(default_factory=list)

    def claim(self, asked: Claim) -> ClaimReply:
        self.asked.append(asked)
        return ClaimReply(self._verdict(asked))

    def keep(self, asked: KeepAnswer) -> KeepReply:
        claim = asked.claim
        found = self._live(claim)
        if found is None:
            found = self.claims[_key(claim)] = Kept(claim, self.now())
        if found.claim.event_id != claim.event_id:
            return KeepReply(is_kept=False)
        if not found.is_kept:
            has_room = self._bytes(claim) + len(asked.sealed or b"") <= KEPT_BYTES_MAX
            is_off = claim.organization_id in self.off
            found.is_kept, found.sealed = True, asked.sealed if has_room and not is_off else None
        return KeepReply(is_kept=True)

    def end(self, asked: Endings) -> EndingsReply:
        changed = 0
        for ending in asked.endings:
            found = {kept.claim.event_id: key for key, kept in self.claims.items()}
            key = found.get(ending.event_id)
            kept = None if key is None else self.claims[key]
            if kept is None:
                self.early |= set() if ending.is_completed else {ending.event_id}
            elif ending.is_completed:
                changed += kept.is_kept and not kept.is_completed
                kept.is_completed = kept.is_kept
            elif not kept.is_completed and key is not None:
                del self.claims[key]
                changed += 1
        return EndingsReply(changed)

    def _verdict(self, asked: Claim) -> Verdict:
        if asked.organization_id in self.off:
            return TurnedOff()
        if asked.event_id in self.early:
            return Ended()
        found = self._live(asked)
        if found is not None:
            return _standing(found, asked)
        count = sum(key[0] == asked.organization_id for key in self.claims)
        if count >= CLAIMS_MAX or self._bytes(asked) >= KEPT_BYTES_MAX:
            return NoRoom(count, self._bytes(asked))
        self.claims[_key(asked)] = Kept(asked, self.now())
        return Claimed()

    def _live(self, asked: Claim) -> Kept | None:
        found = self.claims.get(_key(asked))
        if found is not None and found.at <= self.now() - timedelta(hours=HOURS_KEPT):
            del self.claims[_key(asked)]
            return None
        return found

    def _bytes(self, asked: Claim) -> int:
        mine = [kept for key, kept in self.claims.items() if key[0] == asked.organization_id]
        return sum(len(kept.sealed or b"") for kept in mine)


def _key(claim: Claim) -> Key:
    return claim.organization_id, claim.key_digest


def _standing(found: Kept, asked: Claim) -> Verdict:
    if found.claim.request_digest != asked.request_digest:
        return OtherRequest()
    if found.is_completed:
        return Answered(found.claim.event_id, found.sealed)
    return Claimed() if found.claim.event_id == asked.event_id else Running()
