"""Idempotency keys of inference requests: claim a key, store the response, end the claim, purge.

Each call locks the organization's quota first, so that of two requests with one key the second sees
the first. Responses are erased at once where an organization turns idempotency off, or is deleted.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from control.dataplane.models import EarlyClaimEnding, IdempotencyClaim, IdempotencyQuota
from control.feed.services import FeedRef
from control.organizations.models import Organization
from control.organizations.signals import idempotency_keys_refused, organization_deleted
from serving.contract import idempotency as contract

KEEP = timedelta(hours=contract.HOURS_KEPT)
FORGOTTEN_AT_ONCE = 1_000


def quota(organization: Organization) -> IdempotencyQuota:
    """Return how many keys an organization has, and how many bytes of answers."""
    found = IdempotencyQuota.objects.filter(organization=organization).first()
    return found or IdempotencyQuota(organization=organization)


@transaction.atomic
def claim(asked: contract.Claim, *, now: datetime) -> contract.ClaimReply:
    """Make a request the one of its key, if the key is free."""
    shelf = _locked_quota(asked.organization_id)
    return contract.ClaimReply(_verdict(shelf, asked, now))


@transaction.atomic
def store_response(asked: contract.KeepAnswer, *, now: datetime) -> contract.KeepReply:
    """Keep the answer of the one request of a key, which may complete then; without its content
    where there is no room.

    A claim that is not here (a database restored from a backup forgot it) is made anew.
    """
    shelf, wanted = _locked_quota(asked.claim.organization_id), asked.claim
    found = _live_claim(shelf, wanted.key_digest, now)
    if found is None:
        found = _add(shelf, wanted, now)
    elif (str(found.event_id), found.gateway_id) != (wanted.event_id, wanted.gateway_id):
        return contract.KeepReply(is_kept=False)
    if found.kept_at is None:
        _store(shelf, found, asked.sealed, now)
    return contract.KeepReply(is_kept=True)


def end_claim(asked: contract.Endings, *, now: datetime) -> contract.EndingsReply:
    """Take in how requests ended: the answers of those that completed may be given again, the
    others leave their keys free, also those whose claims are still on their way here."""
    endings: defaultdict[str, list[contract.Ending]] = defaultdict(list)
    for ending in asked.endings:
        endings[ending.organization_id].append(ending)
    known = Organization.objects.filter(id__in=endings).order_by("id")
    return contract.EndingsReply(sum(_end(one.id, endings[one.id], now) for one in known))


def claim_holders(asked: contract.Endings) -> set[str]:
    """Return the gateways whose claims are told to have ended."""
    event_ids = [ending.event_id for ending in asked.endings]
    return set(
        IdempotencyClaim.objects.filter(event_id__in=event_ids).values_list("gateway_id", flat=True)
    )


def purge(*, now: datetime) -> int:
    """Forget claims of over a day ago with their answers; return how many."""
    EarlyClaimEnding.objects.filter(ended_at__lte=now - KEEP).delete()
    old = IdempotencyClaim.objects.filter(claimed_at__lte=now - KEEP)
    organization_ids = list(old.order_by("shelf_id").values_list("shelf_id", flat=True).distinct())
    return sum(_purge_organization(organization_id, now) for organization_id in organization_ids)


def erase(organization_id: str) -> None:
    """Erase all answers of an organization, in the caller's transaction; that their keys were used
    is remembered for the rest of their day."""
    shelf = _locked_quota(organization_id)
    shelf.claims.filter(~Q(sealed_bytes=0)).update(sealed=None, sealed_bytes=0)
    shelf.kept_bytes = 0
    shelf.save(update_fields=["kept_bytes"])


def _locked_quota(organization_id: str) -> IdempotencyQuota:
    IdempotencyQuota.objects.bulk_create(
        [IdempotencyQuota(organization_id=organization_id)], ignore_conflicts=True
    )
    return IdempotencyQuota.objects.select_for_update().get(organization_id=organization_id)


def _verdict(shelf: IdempotencyQuota, asked: contract.Claim, now: datetime) -> contract.Verdict:
    if not _takes_keys(shelf):
        return contract.TurnedOff()
    if EarlyClaimEnding.objects.filter(event_id=asked.event_id).exists():
        return contract.Ended()
    found = _live_claim(shelf, asked.key_digest, now)
    if found is not None:
        return _claim_verdict(found, asked)
    if shelf.claim_count >= contract.CLAIMS_MAX or shelf.kept_bytes >= contract.KEPT_BYTES_MAX:
        return contract.NoRoom(shelf.claim_count, shelf.kept_bytes)
    _add(shelf, asked, now)
    return contract.Claimed()


def _claim_verdict(found: IdempotencyClaim, asked: contract.Claim) -> contract.Verdict:
    event_id = str(found.event_id)
    if found.request_digest != asked.request_digest:
        return contract.OtherRequest()
    if found.is_completed:
        return contract.Answered(event_id, None if found.sealed is None else bytes(found.sealed))
    # A question asked twice, its first answer being lost.
    return contract.Claimed() if event_id == asked.event_id else contract.Running()


def _takes_keys(shelf: IdempotencyQuota) -> bool:
    """Ask anew: what came with the shelf may be of before we had its lock."""
    return Organization.objects.values_list("takes_idempotency_keys", flat=True).get(
        id=shelf.organization_id
    )


def _live_claim(shelf: IdempotencyQuota, key_digest: str, now: datetime) -> IdempotencyClaim | None:
    """Return who has the key; one whose day is over has it no more."""
    claims = shelf.claims.filter(key_digest=key_digest)
    _remove(shelf, claims.filter(claimed_at__lte=now - KEEP))
    return claims.first()


def _add(shelf: IdempotencyQuota, asked: contract.Claim, now: datetime) -> IdempotencyClaim:
    shelf.claim_count += 1
    shelf.save(update_fields=["claim_count"])
    return shelf.claims.create(
        key_digest=asked.key_digest,
        request_digest=asked.request_digest,
        event_id=asked.event_id,
        gateway_id=asked.gateway_id,
        claimed_at=now,
    )


def _store(
    shelf: IdempotencyQuota, claim: IdempotencyClaim, sealed: bytes | None, now: datetime
) -> None:
    room_bytes = contract.KEPT_BYTES_MAX - shelf.kept_bytes
    if sealed is not None and (len(sealed) > room_bytes or not _takes_keys(shelf)):
        sealed = None
    claim.kept_at, claim.sealed, claim.sealed_bytes = now, sealed, len(sealed or b"")
    claim.save(update_fields=["kept_at", "sealed", "sealed_bytes"])
    shelf.kept_bytes += claim.sealed_bytes
    shelf.save(update_fields=["kept_bytes"])


def _remove(shelf: IdempotencyQuota, claims: QuerySet[IdempotencyClaim]) -> int:
    removed = list(claims.values_list("id", "sealed_bytes"))
    if not removed:
        return 0
    IdempotencyClaim.objects.filter(id__in=[id_ for id_, _ in removed]).delete()
    shelf.claim_count -= len(removed)
    shelf.kept_bytes -= sum(sealed_bytes for _, sealed_bytes in removed)
    shelf.save(update_fields=["claim_count", "kept_bytes"])
    return len(removed)


@transaction.atomic
def _end(organization_id: str, endings: Iterable[contract.Ending], now: datetime) -> int:
    shelf = _locked_quota(organization_id)
    completed = {ending.event_id for ending in endings if ending.is_completed}
    failed = {ending.event_id for ending in endings if not ending.is_completed}
    known = shelf.claims.filter(event_id__in=failed).values_list("event_id", flat=True)
    early = failed - {str(event_id) for event_id in known}
    EarlyClaimEnding.objects.bulk_create(
        [EarlyClaimEnding(event_id=event_id, ended_at=now) for event_id in early],
        ignore_conflicts=True,
    )
    kept = shelf.claims.filter(event_id__in=completed, kept_at__isnull=False, is_completed=False)
    changed = kept.update(is_completed=True)
    return changed + _remove(shelf, shelf.claims.filter(event_id__in=failed, is_completed=False))


def _purge_organization(organization_id: str, now: datetime) -> int:
    forgotten = 0
    while count := _purge_some(organization_id, now):
        forgotten += count
    return forgotten


@transaction.atomic
def _purge_some(organization_id: str, now: datetime) -> int:
    shelf = _locked_quota(organization_id)
    return _remove(shelf, shelf.claims.filter(claimed_at__lte=now - KEEP)[:FORGOTTEN_AT_ONCE])


def listen() -> None:
    """Erase answers in the transaction that refuses keys."""
    idempotency_keys_refused.connect(_on_refusal, dispatch_uid="control.dataplane.idempotency")
    organization_deleted.connect(_on_end, dispatch_uid="control.dataplane.idempotency.end")


def _on_refusal(sender: object, organization: Organization, **_: Any) -> None:
    erase(organization.id)


def _on_end(sender: object, organization: Organization, **_: Any) -> list[FeedRef]:
    erase(organization.id)
    return []
