"""The endpoints below /internal/v1/: the change feed, heartbeats, idempotency keys, failed
requests."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from control.dataplane import failed_requests, idempotency
from control.dataplane.authentication import caller_of
from control.dataplane.codec import answer_record
from control.dataplane.gateways import name_gateway, record_heartbeat, require_ownership
from control.feed.views import feed
from serving.contract.failed_requests import FailedRequests, StoredCount
from serving.contract.idempotency import (
    Claim,
    ClaimReply,
    Endings,
    EndingsReply,
    KeepAnswer,
    KeepReply,
)
from serving.contract.presence import Presence
from serving.contract.records import FleetSizeRecord


@csrf_exempt
@require_POST
def claims(request: HttpRequest) -> HttpResponse:
    """Respond whether a request may claim its key."""
    caller = caller_of(request)

    def claim(record: Claim, now: datetime) -> ClaimReply:
        require_ownership(caller, [record.gateway_id])
        return idempotency.claim(record, now=now)

    return answer_record(request, Claim, claim)


@csrf_exempt
@require_POST
def answers(request: HttpRequest) -> HttpResponse:
    """Store the response to a request."""
    caller = caller_of(request)

    def keep(record: KeepAnswer, now: datetime) -> KeepReply:
        require_ownership(caller, [record.claim.gateway_id])
        return idempotency.store_response(record, now=now)

    return answer_record(request, KeepAnswer, keep)


@csrf_exempt
@require_POST
def endings(request: HttpRequest) -> HttpResponse:
    """Record how requests ended."""
    caller = caller_of(request)

    def end(record: Endings, now: datetime) -> EndingsReply:
        require_ownership(caller, idempotency.claim_holders(record))
        return idempotency.end_claim(record, now=now)

    return answer_record(request, Endings, end)


@csrf_exempt
@require_POST
def gateways(request: HttpRequest) -> HttpResponse:
    """Respond with the number of gateways, including the caller's, and record its owner."""
    caller = caller_of(request)

    def heartbeat(presence: Presence, now: datetime) -> FleetSizeRecord:
        name_gateway(caller, presence.gateway_id)
        count = record_heartbeat(
            gateway_id=presence.gateway_id, is_leaving=presence.is_leaving, now=now
        )
        return FleetSizeRecord(count)

    return answer_record(request, Presence, heartbeat)


@csrf_exempt
@require_POST
def failed(request: HttpRequest) -> HttpResponse:
    """Store requests that failed."""
    caller = caller_of(request)

    def store(record: FailedRequests, now: datetime) -> StoredCount:
        require_ownership(caller, [record.gateway_id])
        return failed_requests.store(record, now=now)

    return answer_record(request, FailedRequests, store)


urlpatterns = [
    path("feed", feed),
    path("failed-requests", failed),
    path("gateways/heartbeat", gateways),
    path("idempotency/claims", claims),
    path("idempotency/responses", answers),
    path("idempotency/endings", endings),
]
