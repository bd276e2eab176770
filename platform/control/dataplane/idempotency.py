"""Idempotency keys of inference requests: claim a key, store the response, end the claim, purge.

Each call locks the organization's quota first, so that of two requests with one key the second sees
the first. Responses are erased at once when an organization turns idempotency off or is deleted.
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
    """Return an organization's number of keys and bytes of responses."""
    found = IdempotencyQuota.objects.filter(organization=organization).first()
    return found or IdempotencyQuota(organization=organization)


@transaction.atomic
def claim(asked: contract.IdempotencyClaim, *, now: datetime) -> contract.ClaimReply:
    """Claim a key for a request, if the key is free."""
    return contract.ClaimReply(_verdict(_locked_quota(asked.organization_id), asked, now))


@transaction.atomic
def store_response(asked: contract.StoreResponse, *, now: datetime) -> contract.StoreResponseReply:
    """Store the response to the request that holds a key, which may complete then; without its
    content where the quota is full.

    A claim that is missing (lost in a restore from a backup) is created again.
    """
    quota, wanted = _locked_quota(asked.claim.organization_id), asked.claim
    found = _live_claim(quota, wanted.key_digest, now)
    if found is None:
        found = _add(quota, wanted, now)
    elif (str(found.event_id), found.gateway_id) != (wanted.event_id, wanted.gateway_id):
        return contract.StoreResponseReply(is_kept=False)
    if found.kept_at is None:
        _store(quota, found, asked.sealed, now)
    return contract.StoreResponseReply(is_kept=True)


def end_claim(asked: contract.ClaimEndings, *, now: datetime) -> contract.ClaimEndingsReply:
    """Record how requests ended. The responses of completed ones may be replayed; the others free
    their keys, including those whose claims have not arrived yet."""
    endings: defaultdict[str, list[contract.ClaimEnding]] = defaultdict(list)
    for ending in asked.endings:
        endings[ending.organization_id].append(ending)
    known = Organization.objects.filter(id__in=endings).order_by("id")
    return contract.ClaimEndingsReply(sum(_end(one.id, endings[one.id], now) for one in known))


def claim_holders(asked: contract.ClaimEndings) -> set[str]:
    """Return the gateways that hold the claims reported as ended."""
    event_ids = [ending.event_id for ending in asked.endings]
    return set(
        IdempotencyClaim.objects.filter(event_id__in=event_ids).values_list("gateway_id", flat=True)
    )


def purge(*, now: datetime) -> int:
    """Delete claims older than a day with their responses; return their number."""
    EarlyClaimEnding.objects.filter(ended_at__lte=now - KEEP).delete()
    old = IdempotencyClaim.objects.filter(claimed_at__lte=now - KEEP)
    organization_ids = list(old.order_by("shelf_id").values_list("shelf_id", flat=True).distinct())
    return sum(_purge_organization(organization_id, now) for organization_id in organization_ids)


def erase(organization_id: str) -> None:
    """Erase all responses of an organization, in the caller's transaction; its keys count as used
    for the rest of their day."""
    quota = _locked_quota(organization_id)
    quota.claims.filter(~Q(sealed_bytes=0)).update(sealed=None, sealed_bytes=0)
    quota.kept_bytes = 0
    quota.save(update_fields=["kept_bytes"])


def _locked_quota(organization_id: str) -> IdempotencyQuota:
    IdempotencyQuota.objects.bulk_create(
        [IdempotencyQuota(organization_id=organization_id)], ignore_conflicts=True
    )
    return IdempotencyQuota.objects.select_for_update().get(organization_id=organization_id)


def _verdict(
    quota: IdempotencyQuota, request: contract.IdempotencyClaim, now: datetime
) -> contract.Verdict:
    if not _takes_keys(quota):
        return contract.ClaimDisabled()
    if EarlyClaimEnding.objects.filter(event_id=request.event_id).exists():
        return contract.ClaimClosed()
    found = _live_claim(quota, request.key_digest, now)
    if found is not None:
        return _claim_verdict(found, request)
    if quota.claim_count >= contract.CLAIMS_MAX or quota.kept_bytes >= contract.KEPT_BYTES_MAX:
        return contract.ClaimStorageFull(quota.claim_count, quota.kept_bytes)
    _add(quota, request, now)
    return contract.ClaimGrant()


def _claim_verdict(found: IdempotencyClaim, request: contract.IdempotencyClaim) -> contract.Verdict:
    event_id = str(found.event_id)
    if found.request_digest != request.request_digest:
        return contract.ClaimConflict()
    if found.is_completed:
        return contract.ClaimReplay(event_id, None if found.sealed is None else bytes(found.sealed))
    # The same claim again, since its first response was lost.
    return contract.ClaimGrant() if event_id == request.event_id else contract.ClaimInProgress()


def _takes_keys(quota: IdempotencyQuota) -> bool:
    """Read the setting again: the organization loaded with the quota may predate the lock."""
    return Organization.objects.values_list("idempotency_enabled", flat=True).get(
        id=quota.organization_id
    )


def _live_claim(quota: IdempotencyQuota, key_digest: str, now: datetime) -> IdempotencyClaim | None:
    """Return the claim that holds the key; one older than a day no longer does."""
    claims = quota.claims.filter(key_digest=key_digest)
    _remove(quota, claims.filter(claimed_at__lte=now - KEEP))
    return claims.first()


def _add(
    quota: IdempotencyQuota, request: contract.IdempotencyClaim, now: datetime
) -> IdempotencyClaim:
    quota.claim_count += 1
    quota.save(update_fields=["claim_count"])
    return quota.claims.create(
        key_digest=request.key_digest,
        request_digest=request.request_digest,
        event_id=request.event_id,
        gateway_id=request.gateway_id,
        claimed_at=now,
    )


def _store(
    quota: IdempotencyQuota, claim: IdempotencyClaim, sealed: bytes | None, now: datetime
) -> None:
    room_bytes = contract.KEPT_BYTES_MAX - quota.kept_bytes
    if sealed is not None and (len(sealed) > room_bytes or not _takes_keys(quota)):
        sealed = None
    claim.kept_at, claim.sealed, claim.sealed_bytes = now, sealed, len(sealed or b"")
    claim.save(update_fields=["kept_at", "sealed", "sealed_bytes"])
    quota.kept_bytes += claim.sealed_bytes
    quota.save(update_fields=["kept_bytes"])


def _remove(quota: IdempotencyQuota, claims: QuerySet[IdempotencyClaim]) -> int:
    removed = list(claims.values_list("id", "sealed_bytes"))
    if not removed:
        return 0
    IdempotencyClaim.objects.filter(id__in=[id_ for id_, _ in removed]).delete()
    quota.claim_count -= len(removed)
    quota.kept_bytes -= sum(sealed_bytes for _, sealed_bytes in removed)
    quota.save(update_fields=["claim_count", "kept_bytes"])
    return len(removed)


@transaction.atomic
def _end(organization_id: str, endings: Iterable[contract.ClaimEnding], now: datetime) -> int:
    quota = _locked_quota(organization_id)
    completed = {ending.event_id for ending in endings if ending.is_completed}
    failed = {ending.event_id for ending in endings if not ending.is_completed}
    known = quota.claims.filter(event_id__in=failed).values_list("event_id", flat=True)
    early = failed - {str(event_id) for event_id in known}
    EarlyClaimEnding.objects.bulk_create(
        [EarlyClaimEnding(event_id=event_id, ended_at=now) for event_id in early],
        ignore_conflicts=True,
    )
    kept = quota.claims.filter(event_id__in=completed, kept_at__isnull=False, is_completed=False)
    changed = kept.update(is_completed=True)
    return changed + _remove(quota, quota.claims.filter(event_id__in=failed, is_completed=False))


def _purge_organization(organization_id: str, now: datetime) -> int:
    purged = 0
    while count := _purge_some(organization_id, now):
        purged += count
    return purged


@transaction.atomic
def _purge_some(organization_id: str, now: datetime) -> int:
    quota = _locked_quota(organization_id)
    return _remove(quota, quota.claims.filter(claimed_at__lte=now - KEEP)[:FORGOTTEN_AT_ONCE])


def listen() -> None:
    """Erase responses in the transaction that turns idempotency keys off."""
    idempotency_keys_refused.connect(_on_refusal, dispatch_uid="control.dataplane.idempotency")
    organization_deleted.connect(_on_end, dispatch_uid="control.dataplane.idempotency.end")


def _on_refusal(sender: object, organization: Organization, **_: Any) -> None:
    erase(organization.id)


def _on_end(sender: object, organization: Organization, **_: Any) -> list[FeedRef]:
    erase(organization.id)
    return []
