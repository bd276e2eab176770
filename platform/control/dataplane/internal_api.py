"""The endpoints below /internal/v1/: the change feed, the lives of fleets, heartbeats, idempotency
keys, failed requests."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from control.catalog import fleets
from control.dataplane import failed_requests, idempotency
from control.dataplane.authentication import caller_of
from control.dataplane.codec import answer_record
from control.dataplane.gateways import name_gateway, record_heartbeat, require_ownership
from control.feed.views import feed
from serving.contract.failed_requests import FailedRequests, StoredCount
from serving.contract.fleet import FleetGeneration, FleetHeartbeat, FleetRegistration
from serving.contract.idempotency import (
    ClaimEndings,
    ClaimEndingsReply,
    ClaimReply,
    IdempotencyClaim,
    StoreResponse,
    StoreResponseReply,
)
from serving.contract.limits import GatewayHeartbeat
from serving.contract.records import GatewayCountRecord


@csrf_exempt
@require_POST
def claims(request: HttpRequest) -> HttpResponse:
    """Respond whether a request may claim its key."""
    caller = caller_of(request)

    def claim(record: IdempotencyClaim, now: datetime) -> ClaimReply:
        require_ownership(caller, [record.gateway_id])
        return idempotency.claim(record, now=now)

    return answer_record(request, IdempotencyClaim, claim)


@csrf_exempt
@require_POST
def answers(request: HttpRequest) -> HttpResponse:
    """Store the response to a request."""
    caller = caller_of(request)

    def keep(record: StoreResponse, now: datetime) -> StoreResponseReply:
        require_ownership(caller, [record.claim.gateway_id])
        return idempotency.store_response(record, now=now)

    return answer_record(request, StoreResponse, keep)


@csrf_exempt
@require_POST
def endings(request: HttpRequest) -> HttpResponse:
    """Record how requests ended."""
    caller = caller_of(request)

    def end(record: ClaimEndings, now: datetime) -> ClaimEndingsReply:
        require_ownership(caller, idempotency.claim_holders(record))
        return idempotency.end_claim(record, now=now)

    return answer_record(request, ClaimEndings, end)


@csrf_exempt
@require_POST
def gateways(request: HttpRequest) -> HttpResponse:
    """Respond with the number of gateways, including the caller's, and record its owner."""
    caller = caller_of(request)

    def heartbeat(presence: GatewayHeartbeat, now: datetime) -> GatewayCountRecord:
        name_gateway(caller, presence.gateway_id)
        count = record_heartbeat(
            gateway_id=presence.gateway_id, is_leaving=presence.is_leaving, now=now
        )
        return GatewayCountRecord(count)

    return answer_record(request, GatewayHeartbeat, heartbeat)


@csrf_exempt
@require_POST
def failed(request: HttpRequest) -> HttpResponse:
    """Store requests that failed."""
    caller = caller_of(request)

    def store(record: FailedRequests, now: datetime) -> StoredCount:
        require_ownership(caller, [record.gateway_id])
        return failed_requests.store(record, now=now)

    return answer_record(request, FailedRequests, store)


@csrf_exempt
@require_POST
def fleet_registration(request: HttpRequest) -> HttpResponse:
    """Respond with the generation of a fleet's life that begins."""
    name = caller_of(request).name

    def register(record: FleetRegistration, now: datetime) -> FleetGeneration:
        return fleets.register(name, record, now=now)

    return answer_record(request, FleetRegistration, register)


@csrf_exempt
@require_POST
def fleet_heartbeat(request: HttpRequest) -> HttpResponse:
    """Record that a fleet's life goes on; 409 `fleet_superseded` if a newer one has registered."""
    name = caller_of(request).name

    def heartbeat(record: FleetHeartbeat, now: datetime) -> FleetGeneration:
        return fleets.record_heartbeat(name, record, now=now)

    return answer_record(request, FleetHeartbeat, heartbeat)


urlpatterns = [
    path("feed", feed),
    path("failed-requests", failed),
    path("fleets/heartbeat", fleet_heartbeat),
    path("fleets/register", fleet_registration),
    path("gateways/heartbeat", gateways),
    path("idempotency/claims", claims),
    path("idempotency/responses", answers),
    path("idempotency/endings", endings),
]
